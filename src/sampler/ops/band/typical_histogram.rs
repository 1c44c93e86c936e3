//! Typical sampling (`sampler/band.rs`): masses by a digit of the distance of depths from the mean, of depths that agree in the digits
//! before.

use super::sample_band::{Inputs, inputs};
use super::typical_moments::TypicalMoments;
use crate::error::Result;
use crate::sampler::band::{
    BAND, Band, DIGITS, HEADER, MOMENTS, TYPICAL, defines, modules, moments_of, part_of, typical_bin, typical_cut,
    weight,
};
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{BINS, MAX_GROUPS, by_rows, groups, mass_bits};
use crate::tensor::{Capabilities, Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), band [rows, 4] u32, moments [rows, MAX_GROUPS · 5]
/// u32, tally [rows, TYPICAL] u32 (changed: the histogram of this digit, and the result of the one before).
#[derive(Clone)]
pub struct TypicalHistogram {
    /// 0, 1 or 2; the ops run in this order.
    pub digit: usize,
}

impl Op for TypicalHistogram {
    on_cpu!();

    fn name(&self) -> &'static str {
        "typical_histogram"
    }

    fn mutates(&self) -> &'static [usize] {
        &[4]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("typical_histogram", inputs, &[f32, u32, u32, u32, u32])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [1, 2, 3, 4].map(|input| inputs[input].shape.elements());
        let wanted = [SamplerRow::WORDS, BAND, MAX_GROUPS * MOMENTS, TYPICAL];
        if lengths != wanted.map(|words| words * rows) || self.digit >= DIGITS {
            bail!(ShapeMismatch, "typical_histogram: inputs of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("typical_histogram.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary), self.digit as u32],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for TypicalHistogram {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let band = Band::of(&inputs[2].to_u32()?);
            let (mass, product) = moments_of(&inputs[3].to_u32()?);
            let mut tally = inputs[4].to_u32()?;
            let mean = product.checked_div(u128::from(mass)).unwrap_or(0) as u32;
            let mut digits = 0;
            if self.digit == 0 {
                tally[..3].copy_from_slice(&[mean, mass as u32, (mass >> 32) as u32]);
            } else {
                let found = digits_of(&tally, self.digit, part_of(mass, row.typical_p));
                digits = found.0;
                let words = [found.0, found.1 as u32, (found.1 >> 32) as u32];
                tally[4 * self.digit..][..3].copy_from_slice(&words);
            }
            let at = HEADER + 2 * self.digit * BINS;
            for (_, _, depth) in band.kept(&logits, row.octaves) {
                if let Some(bin) = typical_bin(depth, mean, self.digit, digits) {
                    let sum = (u64::from(tally[at + BINS + bin]) << 32 | u64::from(tally[at + bin]))
                        + weight(depth, logits.len());
                    (tally[at + bin], tally[at + BINS + bin]) = (sum as u32, (sum >> 32) as u32);
                }
            }
            inputs[4].set_u32(&tally);
            Ok(vec![])
        })
    }
}

/// The digits before one, and the mass of more typical tokens.
pub(super) fn digits_of(tally: &[u32], digit: usize, wanted: f32) -> (u32, u64) {
    let before = match digit {
        1 => (0, 0),
        _ => {
            let words = &tally[4 * (digit - 1)..];
            (words[0], u64::from(words[2]) << 32 | u64::from(words[1]))
        }
    };
    typical_cut(&tally[HEADER + 2 * (digit - 1) * BINS..][..2 * BINS], before, wanted)
}

/// For each case the inputs of every digit, then those after the last.
pub(super) fn by_digits(rng: &mut Rng) -> Result<Vec<[Vec<HostTensor>; DIGITS + 1]>> {
    let mut all = Vec::new();
    for Inputs { logits, settings, band, .. } in inputs(rng)? {
        let outputs = TypicalMoments.reference(&mut [logits.clone(), settings.clone(), band.clone()])?;
        let mut inputs: Vec<HostTensor> = [logits, settings, band].into_iter().chain(outputs).collect();
        let first = inputs.clone();
        let mut digits = Vec::new();
        for digit in 0..DIGITS {
            TypicalHistogram { digit }.reference(&mut inputs)?;
            digits.push(inputs.clone());
        }
        if let Ok([second, third, last]) = <[Vec<HostTensor>; DIGITS]>::try_from(digits) {
            all.push([first, second, third, last]);
        }
    }
    Ok(all)
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for inputs in by_digits(&mut Rng(94)).unwrap_or_default() {
        for (digit, inputs) in inputs.into_iter().take(DIGITS).enumerate() {
            cases.push(Case::new(TypicalHistogram { digit }, inputs, 0.0));
        }
    }
    cases
}
