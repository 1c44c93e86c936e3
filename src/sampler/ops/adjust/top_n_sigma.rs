//! Top-n-sigma (Tang et al. 2024; llama.cpp has the same): only the logits that are at most n standard deviations below the largest
//! stay. Mean and deviation are of the logits that are not masked. The others are masked.

use crate::error::Result;
use crate::sampler::adjustment;
use crate::sampler::params::SamplingParams;
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{by_rows, defines, is_no_logit, key_of};
use crate::tensor::{Capabilities, Case, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`). Output: logits [rows, vocabulary].
#[derive(Clone)]
pub struct TopNSigma;

impl Op for TopNSigma {
    on_cpu!();

    fn name(&self) -> &'static str {
        "top_n_sigma"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("top_n_sigma", inputs, &[Some(DType::F32), Some(DType::U32)])?;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        if inputs[1].shape.elements() != rows * SamplerRow::WORDS {
            bail!(ShapeMismatch, "top_n_sigma: logits {}, settings {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[rows, vocabulary])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let mut defines = defines(vocabulary);
        defines.push(("MASKED", Define::U32(f32::MIN.to_bits())));
        Ok(Kernel {
            template: crate::shader!("top_n_sigma.wgsl"),
            modules: adjustment::modules(),
            defines,
            params: vec![vocabulary as u32],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for TopNSigma {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let mut logits = inputs[0].to_f32()?;
            let n = SamplerRow::read(&inputs[1])?.top_n_sigma;
            let allowed: Vec<f64> =
                logits.iter().filter(|logit| !is_no_logit(key_of(**logit))).map(|logit| f64::from(*logit)).collect();
            let is_broken = logits.iter().any(|logit| key_of(*logit) == u32::MAX);
            if n > 0.0 && !is_broken && !allowed.is_empty() {
                let count = allowed.len() as f64;
                let mean = allowed.iter().sum::<f64>() / count;
                let deviation = (allowed.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
                let largest = allowed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let least = largest - f64::from(n) * deviation;
                for logit in logits.iter_mut().filter(|logit| f64::from(**logit) < least) {
                    *logit = f32::MIN;
                }
            }
            Ok(vec![HostTensor::f32(&[1, logits.len()], &logits)])
        })
    }
}

/// Rows of logits, some masked, each with a setting.
pub(super) fn cases_of(settings: &[SamplingParams], rng: &mut Rng) -> Vec<[HostTensor; 2]> {
    let shapes = [(1, 1), (1, 2), (1, 257), (3, 5003), (1, 32_003), (2, 128_256)];
    let case = |(index, (rows, vocabulary)): (usize, (usize, usize))| {
        let mut logit = |at: usize| {
            let x = (0..4).map(|_| 3.0 * rng.signed()).sum::<f32>();
            if vocabulary == 5003 && at.is_multiple_of(3) { f32::MIN } else { 7.0 + x }
        };
        let data: Vec<f32> = (0..rows * vocabulary).map(&mut logit).collect();
        let rows: Vec<SamplerRow> =
            (0..rows).map(|row| SamplerRow::new(&settings[(index + row) % settings.len()])).collect();
        [HostTensor::f32(&[rows.len(), vocabulary], &data), SamplerRow::tensor(&rows)]
    };
    shapes.into_iter().enumerate().map(case).collect()
}

pub fn cases() -> Vec<Case> {
    let of = |top_n_sigma| SamplingParams { top_n_sigma, ..SamplingParams::default() };
    let settings = [of(1.0), of(0.0), of(2.5)];
    let mut cases = cases_of(&settings, &mut Rng(103));
    // All masked; all equal; all far from 0.
    for data in [vec![f32::MIN; 300], vec![-2.5; 300], (0..300).map(|i| 1e4 + (i % 17) as f32).collect()] {
        cases.push([HostTensor::f32(&[1, 300], &data), SamplerRow::tensor(&[SamplerRow::new(&of(1.0))])]);
    }
    cases.into_iter().map(|inputs| Case::new(TopNSigma, inputs.into(), 0.0)).collect()
}
