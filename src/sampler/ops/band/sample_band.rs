//! The thresholds of truncated sampling as a band (`sampler/band.rs`), which further truncations cut. With mirostat 2 the band ends at
//! the currently allowed surprise.

use crate::error::Result;
use crate::sampler::band::{BAND, Band, defines, modules};
use crate::sampler::ops::{SampleHistogram, SampleRange, SampleSplit};
use crate::sampler::params::SamplingParams;
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{BORDER, Border, by_rows, least_key_of, mass_bits};
use crate::tensor::{Capabilities, Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), border [rows, BORDER] u32,
/// mu [rows]: the surprise that mirostat allows, in bits. Output: band [rows, 4] u32.
#[derive(Clone)]
pub struct SampleBand;

impl Op for SampleBand {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sample_band"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("sample_band", inputs, &[f32, u32, u32, f32])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [1, 2, 3].map(|input| inputs[input].shape.elements());
        if lengths != [SamplerRow::WORDS, BORDER, 1].map(|words| words * rows) {
            bail!(ShapeMismatch, "sample_band: inputs of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![Desc::u32(&[rows, BAND])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("sample_band.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary)],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for SampleBand {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let border_words = inputs[2].to_u32()?;
            let border = Border::of(&border_words);
            let least_key = least_key_of(&border_words, &logits, &row);
            let mu = inputs[3].to_f32()?[0];
            let band = Band::of_border(&border, least_key, &row, mu, mass_bits(logits.len()));
            Ok(vec![HostTensor::u32(&[1, BAND], &band.words())])
        })
    }
}

/// The inputs of the ops of a band.
pub(super) struct Inputs {
    pub logits: HostTensor,
    pub settings: HostTensor,
    pub state: HostTensor,
    pub border: HostTensor,
    pub mu: HostTensor,
    pub band: HostTensor,
}

/// Vocabularies of several sizes and kinds, cut before and not, with settings that cut in different ways.
pub(super) fn inputs(rng: &mut Rng) -> Result<Vec<Inputs>> {
    let all = SamplerRow::new(&SamplingParams { seed: 5, ..SamplingParams::default() });
    let cut = SamplingParams { top_k: 900, top_p: 0.97, temperature: 1.3, seed: 5, ..SamplingParams::default() };
    let cut = SamplerRow::new(&cut);
    let low = SamplerRow::new(&SamplingParams { min_p: 0.01, seed: 5, ..SamplingParams::default() });
    let typical = |row| SamplerRow { typical_p: 0.6, ..row };
    let excluding = |row| SamplerRow { xtc_probability: 1.0, xtc_threshold: 0.002, ..row };
    let both = |row| SamplerRow { typical_p: 0.95, xtc_probability: 0.6, ..excluding(row) };
    let mirostat = |row| SamplerRow { mirostat_tau: 5.0, mirostat_eta: 0.1, ..row };
    let mut inputs = Vec::new();
    for (vocabulary, scale, rows, mu) in [
        (1, 1.0, vec![typical(all)], 1.0),
        (257, 8.0, vec![typical(all)], 1.0),
        (257, 8.0, vec![both(low)], 1.0),
        (3001, 3.0, vec![excluding(all)], 1.0),
        (5003, 4.0, vec![both(cut)], 0.0),
        (5003, 4.0, vec![mirostat(all)], 7.5),
        (5003, 4.0, vec![mirostat(all)], -3.0),
        (128_256, 12.0, vec![typical(all)], 0.0),
        (151_937, 1.0, vec![mirostat(cut)], 10.0),
        (262_147, 2.0, vec![both(all)], 0.0),
        (1031, 5.0, vec![typical(cut), excluding(cut), mirostat(cut), cut], 4.0),
    ] {
        let settings = SamplerRow::tensor(&rows);
        let rows = rows.len();
        let mut data: Vec<f32> = (0..rows * vocabulary).map(|_| scale * rng.signed()).collect();
        // Masked tokens, and equal ones.
        if vocabulary == 5003 {
            data.iter_mut().step_by(7).for_each(|logit| *logit = f32::NEG_INFINITY);
            data.iter_mut().step_by(5).for_each(|logit| *logit = logit.round());
        }
        let logits = HostTensor::f32(&[rows, vocabulary], &data);
        let state: Vec<u32> = (0..rows as u32).flat_map(|row| [7, 3 + row, 0, row]).collect();
        let state = HostTensor::u32(&[rows, 4], &state);
        let tally = SampleRange.reference(&mut [logits.clone()])?.remove(0);
        let mut ranged = [logits.clone(), settings.clone(), tally];
        SampleHistogram.reference(&mut ranged)?;
        let [_, _, tally] = ranged;
        let border = SampleSplit.reference(&mut [logits.clone(), settings.clone(), state.clone(), tally])?.remove(2);
        let mu = HostTensor::f32(&[rows], &vec![mu; rows]);
        let [one, two, three, four] = [&logits, &settings, &border, &mu].map(HostTensor::clone);
        let band = SampleBand.reference(&mut [one, two, three, four])?.remove(0);
        inputs.push(Inputs { logits, settings, state, border, mu, band });
    }
    Ok(inputs)
}

pub fn cases() -> Vec<Case> {
    let inputs = inputs(&mut Rng(92)).unwrap_or_default();
    let cases = inputs.into_iter().map(|inputs| {
        let Inputs { logits, settings, border, mu, .. } = inputs;
        Case::new(SampleBand, vec![logits, settings, border, mu], 0.0)
    });
    cases.collect()
}
