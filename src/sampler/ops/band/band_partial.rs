//! First half of choosing a token from a band (`sampler/band.rs`): Gumbel-max over each share of the vocabulary. `sample_merge` is the
//! second.

use super::sample_band::{Inputs, inputs};
use crate::error::Result;
use crate::sampler::band::{BAND, Band, defines, modules};
use crate::sampler::ops::choice::sample_partial::shares;
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{by_rows, is_no_logit};
use crate::tensor::{Capabilities, Case, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), state [rows, 4] u32 (a row's second word is its
/// step), band [rows, 4] u32. Outputs: values [rows, shares] f32, tokens [rows, shares] u32. A share without kept tokens has the
/// least finite value and token 0; with a NaN among the logits, or nothing but -∞, tokens are u32::MAX.
#[derive(Clone)]
pub struct BandPartial;

impl Op for BandPartial {
    on_cpu!();

    fn name(&self) -> &'static str {
        "band_partial"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("band_partial", inputs, &[Some(DType::F32), Some(DType::U32), Some(DType::U32), Some(DType::U32)])?;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let shares = shares(vocabulary);
        let lengths = [1, 2, 3].map(|input| inputs[input].shape.elements());
        if lengths != [SamplerRow::WORDS, 4, BAND].map(|words| words * rows) {
            bail!(ShapeMismatch, "band_partial: inputs of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![Desc::f32(&[rows, shares]), Desc::u32(&[rows, shares])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let shares = shares(vocabulary) as u32;
        let mut defines = defines(vocabulary);
        defines.push(("SHARES", Define::U32(shares)));
        Ok(Kernel {
            template: crate::shader!("band_partial.wgsl"),
            modules: modules(),
            defines,
            params: vec![vocabulary as u32],
            grid: [shares / 64, rows as u32, 1],
        })
    }
}

impl Reference for BandPartial {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let step = inputs[2].to_u32()?[1];
            let band = Band::of(&inputs[3].to_u32()?);
            let shares = shares(logits.len());
            let mut values = vec![f32::MIN; shares];
            let mut tokens = vec![if is_no_logit(band.largest) { u32::MAX } else { 0 }; shares];
            for (token, key, _) in band.kept(&logits, row.octaves).filter(|_| !is_no_logit(band.largest)) {
                let value = row.value(key, band.largest, token as u32, step);
                if value > values[token % shares] {
                    (values[token % shares], tokens[token % shares]) = (value, token as u32);
                }
            }
            Ok(vec![HostTensor::f32(&[1, shares], &values), HostTensor::u32(&[1, shares], &tokens)])
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut inputs = inputs(&mut Rng(98)).unwrap_or_default();
    // NaN, and no allowed token.
    for largest in [u32::MAX, 0x7f_ffff] {
        if let Some(Inputs { logits, settings, state, border, mu, .. }) = inputs.get(3) {
            let [logits, settings, state] = [logits, settings, state].map(HostTensor::clone);
            let [border, mu] = [border, mu].map(HostTensor::clone);
            let band = HostTensor::u32(&[1, BAND], &[largest, 0, 0, u32::MAX]);
            inputs.push(Inputs { logits, settings, state, border, mu, band });
        }
    }
    // Values of shares without a token are so large that errors in others would not show.
    let cases = inputs.into_iter().map(|inputs| {
        let Inputs { logits, settings, state, band, .. } = inputs;
        Case::new(BandPartial, vec![logits, settings, state, band], 1e-5)
    });
    cases.collect()
}
