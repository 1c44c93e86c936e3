//! XTC, "exclude top choices" (`sampler/band.rs`): if several tokens of a band reach a threshold of probability, then with a certain
//! probability the band begins at the least probable of them. Tokens as probable as that one stay too.

use super::band_mass::with_masses;
use super::sample_band::Inputs;
use crate::error::Result;
use crate::sampler::band::{BAND, Band, defines, mass_of, modules, weight};
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{MAX_GROUPS, by_rows, groups, mass_as_float, mass_bits};
use crate::tensor::ops::pcg3d;
use crate::tensor::{Capabilities, Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), state [rows, 4] u32 (a row's second word is its
/// step), masses [rows, 2 · MAX_GROUPS] u32, band [rows, 4] u32 (changed).
#[derive(Clone)]
pub struct Xtc;

/// The token in the hash that decides whether tokens are excluded at a step.
const DRAW: u32 = u32::MAX - 1;

impl Op for Xtc {
    on_cpu!();

    fn name(&self) -> &'static str {
        "xtc"
    }

    fn mutates(&self) -> &'static [usize] {
        &[4]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("xtc", inputs, &[f32, u32, u32, u32, u32])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [1, 2, 3, 4].map(|input| inputs[input].shape.elements());
        let wanted = [SamplerRow::WORDS, 4, 2 * MAX_GROUPS, BAND];
        if lengths != wanted.map(|words| words * rows) {
            bail!(ShapeMismatch, "xtc: inputs of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("xtc.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary), DRAW],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for Xtc {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let step = inputs[2].to_u32()?[1];
            let wanted = row.xtc_threshold * mass_as_float(mass_of(&inputs[3].to_u32()?));
            let mut band = Band::of(&inputs[4].to_u32()?);
            let draw = pcg3d([row.seed_low ^ DRAW, row.seed_high, step])[0] >> 8;
            if draw as f32 * 2f32.powi(-24) < row.xtc_probability {
                let reaches = |depth: &u32| mass_as_float(weight(*depth, logits.len())) >= wanted;
                let depths = band.kept(&logits, row.octaves).map(|(_, _, depth)| depth);
                band.low = depths.filter(reaches).fold(band.low, u32::max);
            }
            inputs[4].set_u32(&band.words());
            Ok(vec![])
        })
    }
}

pub fn cases() -> Vec<Case> {
    let inputs = with_masses(&mut Rng(97)).unwrap_or_default();
    let cases = inputs.into_iter().map(|(inputs, mass)| {
        let Inputs { logits, settings, state, band, .. } = inputs;
        Case::new(Xtc, vec![logits, settings, state, mass, band], 0.0)
    });
    cases.collect()
}
