//! Last step of typical sampling (`sampler/band.rs`): cuts the band to the distance from the mean depth that was found.

use super::typical_histogram::{by_digits, digits_of};
use crate::error::Result;
use crate::sampler::band::{BAND, DIGITS, TYPICAL, defines, modules, part_of};
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::by_rows;
use crate::tensor::{Capabilities, Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: settings [rows, WORDS] u32 (`SamplerRow`), tally [rows, TYPICAL] u32, band [rows, 4] u32 (changed).
#[derive(Clone)]
pub struct TypicalBand;

impl Op for TypicalBand {
    on_cpu!();

    fn name(&self) -> &'static str {
        "typical_band"
    }

    fn mutates(&self) -> &'static [usize] {
        // The tally is bound as words that are added to.
        &[1, 2]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("typical_band", inputs, &[Some(DType::U32); 3])?;
        let rows = inputs[2].shape.elements() / BAND;
        let lengths = [0, 1, 2].map(|input| inputs[input].shape.elements());
        if lengths != [SamplerRow::WORDS, TYPICAL, BAND].map(|words| words * rows) {
            bail!(ShapeMismatch, "typical_band: inputs of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        Ok(Kernel {
            template: crate::shader!("typical_band.wgsl"),
            modules: modules(),
            // The vocabulary is not used.
            defines: defines(1),
            params: vec![],
            grid: [(inputs[2].shape.elements() / BAND) as u32, 1, 1],
        })
    }
}

impl Reference for TypicalBand {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[2].shape.elements() / BAND, inputs, |inputs| {
            let row = SamplerRow::read(&inputs[0])?;
            let tally = inputs[1].to_u32()?;
            let mut band = inputs[2].to_u32()?;
            if row.typical_p < 1.0 {
                let mass = u64::from(tally[2]) << 32 | u64::from(tally[1]);
                let (distance, _) = digits_of(&tally, DIGITS, part_of(mass, row.typical_p));
                band[2] = band[2].max(tally[0].saturating_sub(distance));
                band[3] = band[3].min(tally[0] + distance);
            }
            inputs[2].set_u32(&band);
            Ok(vec![])
        })
    }
}

pub fn cases() -> Vec<Case> {
    let cases = by_digits(&mut Rng(95)).unwrap_or_default().into_iter().map(|[.., inputs]| {
        let [settings, band, tally] = [1, 2, 4].map(|input| inputs[input].clone());
        Case::new(TypicalBand, vec![settings, tally, band], 0.0)
    });
    cases.collect()
}
