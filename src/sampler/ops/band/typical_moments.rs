//! Typical sampling (`sampler/band.rs`): mass of a band, and the sum of mass times depth, by workgroups. Also empties the tally.

use super::sample_band::{Inputs, inputs};
use crate::error::Result;
use crate::sampler::band::{Band, MOMENTS, TYPICAL, by_groups, defines, modules, rows_of, weight};
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{MAX_GROUPS, by_rows, group_of, groups, mass_bits};
use crate::tensor::{Capabilities, Case, Desc, HostTensor, Kernel, Op, Reference, Rng, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), band [rows, 4] u32. Outputs: moments
/// [rows, MAX_GROUPS · 5] u32; tally [rows, TYPICAL] u32, all zero.
#[derive(Clone)]
pub struct TypicalMoments;

impl Op for TypicalMoments {
    on_cpu!();

    fn name(&self) -> &'static str {
        "typical_moments"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let rows = rows_of("typical_moments", inputs)?;
        Ok(vec![Desc::u32(&[rows, MAX_GROUPS * MOMENTS]), Desc::u32(&[rows, TYPICAL])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("typical_moments.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary), TYPICAL as u32],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for TypicalMoments {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let octaves = SamplerRow::read(&inputs[1])?.octaves;
            let band = Band::of(&inputs[2].to_u32()?);
            let mut sums = vec![(0u64, 0u128); groups(logits.len())];
            for (token, _, depth) in band.kept(&logits, octaves) {
                let (mass, product) = &mut sums[group_of(token, logits.len())];
                let weight = weight(depth, logits.len());
                *mass += weight;
                *product += u128::from(weight) * u128::from(depth);
            }
            let words = |(mass, product): (u64, u128)| {
                let product = [product as u32, (product >> 32) as u32, (product >> 64) as u32];
                [&[mass as u32, (mass >> 32) as u32][..], &product[..]].concat()
            };
            let sums: Vec<Vec<u32>> = sums.into_iter().map(words).collect();
            Ok(vec![by_groups(&sums, MOMENTS), HostTensor::u32(&[1, TYPICAL], &[0; TYPICAL])])
        })
    }
}

pub fn cases() -> Vec<Case> {
    let inputs = inputs(&mut Rng(93)).unwrap_or_default();
    let cases = inputs.into_iter().map(|inputs| {
        let Inputs { logits, settings, band, .. } = inputs;
        Case::new(TypicalMoments, vec![logits, settings, band], 0.0)
    });
    cases.collect()
}
