//! Dynamic temperature (Zhu et al. 2023; llama.cpp's `dynatemp_range` and `dynatemp_exponent`): a temperature for each token, between
//! temperature − range and temperature + range of the request. It is low if the model is certain, and high if it is not: it follows the
//! entropy of the distribution at temperature 1, relative to the largest possible entropy, to the power of the exponent.
//!
//! The kernels that choose apply the request's temperature later. So this op scales logits such that the result has the dynamic
//! temperature.

use super::top_n_sigma::cases_of;
use crate::error::Result;
use crate::sampler::adjustment;
use crate::sampler::params::SamplingParams;
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{by_rows, defines, is_no_logit, key_of};
use crate::tensor::{Capabilities, Case, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`). Output: logits [rows, vocabulary]; for rows
/// with a range, the largest logit is subtracted.
#[derive(Clone)]
pub struct Dynatemp;

/// The lowest temperature; below it only the most probable tokens would be left.
const LEAST_TEMPERATURE: f32 = 1e-3;

impl Op for Dynatemp {
    on_cpu!();

    fn name(&self) -> &'static str {
        "dynatemp"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("dynatemp", inputs, &[Some(DType::F32), Some(DType::U32)])?;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        if inputs[1].shape.elements() != rows * SamplerRow::WORDS {
            bail!(ShapeMismatch, "dynatemp: logits {}, settings {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[rows, vocabulary])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let mut defines = defines(vocabulary);
        defines.push(("LEAST_TEMPERATURE", Define::F32(LEAST_TEMPERATURE)));
        Ok(Kernel {
            template: crate::shader!("dynatemp.wgsl"),
            modules: adjustment::modules(),
            defines,
            params: vec![vocabulary as u32],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for Dynatemp {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let mut logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let is_broken = logits.iter().any(|logit| key_of(*logit) == u32::MAX);
            let is_allowed = |logit: &f32| !is_no_logit(key_of(*logit));
            let largest = logits.iter().copied().filter(is_allowed).map(f64::from).fold(f64::NEG_INFINITY, f64::max);
            let below: Vec<f64> =
                logits.iter().filter(|logit| is_allowed(logit)).map(|logit| f64::from(*logit) - largest).collect();
            if row.dynatemp_range > 0.0 && row.inverse_temperature > 0.0 && below.len() > 1 && !is_broken {
                let mass: f64 = below.iter().map(|x| x.exp()).sum();
                let entropy = mass.ln() - below.iter().map(|x| x.exp() * x).sum::<f64>() / mass;
                let share = entropy / (below.len() as f64).ln();
                let (middle, range) = (1.0 / f64::from(row.inverse_temperature), f64::from(row.dynatemp_range));
                let (low, high) = ((middle - range).max(0.0), middle + range);
                let temperature = low + (high - low) * share.powf(f64::from(row.dynatemp_exponent));
                let scale = middle / temperature.max(f64::from(LEAST_TEMPERATURE));
                for logit in logits.iter_mut().filter(|logit| is_allowed(logit)) {
                    *logit = ((f64::from(*logit) - largest) * scale) as f32;
                }
            }
            Ok(vec![HostTensor::f32(&[1, logits.len()], &logits)])
        })
    }
}

pub fn cases() -> Vec<Case> {
    let of = |temperature, dynatemp_range, dynatemp_exponent| SamplingParams {
        temperature,
        dynatemp_range,
        dynatemp_exponent,
        ..SamplingParams::default()
    };
    let settings = [of(1.0, 0.5, 1.0), of(0.7, 0.0, 1.0), of(0.4, 0.6, 2.0), of(1.5, 1.0, 0.5)];
    let mut cases = cases_of(&settings, &mut Rng(102));
    // All masked; all equal; one certain token.
    for data in [vec![f32::MIN; 300], vec![-2.5; 300], (0..300).map(|i| if i == 7 { 90.0 } else { 0.0 }).collect()] {
        cases.push([HostTensor::f32(&[1, 300], &data), SamplerRow::tensor(&[SamplerRow::new(&settings[2])])]);
    }
    // WGSL lets log be off by 2^-21 near 1, and pow multiplies that with its exponent.
    cases.into_iter().map(|inputs| Case::new(Dynatemp, inputs.into(), 3e-5)).collect()
}
