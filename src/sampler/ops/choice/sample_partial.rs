//! First half of choosing the next token: each of many invocations finds the best of its share of the vocabulary.
//!
//! Greedy takes the largest logit, the first among equals. With a temperature T it takes the largest of logit / T + g with
//! Gumbel noise g, which draws from softmax(logits / T) exactly (the Gumbel-max trick; Maddison et al. 2014) without a pass
//! over the vocabulary for the sum. The noise is a hash of seed, step and token (pcg3d; Jarzynski, Olano 2020), so the same
//! seed gives the same tokens.

use std::ops::RangeInclusive;

use rillm_cpu_kernels::best_of_shares;

use crate::error::Result;
use crate::sampler::params::SamplingParams;
use crate::sampler::row::SamplerRow;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::truncation::{by_rows, gumbel};
use crate::tensor::ops::PCG3D;
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, by_reference, expect,
    fits, on_cpu,
};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), state [rows, 4] u32 (a row's second word
/// is its step). Outputs: values [rows, shares] f32, tokens [rows, shares] u32; the token of a share with a NaN is u32::MAX.
#[derive(Clone)]
pub struct SamplePartial;

/// The fewest and the most invocations that share the vocabulary of a row.
pub const SHARES: RangeInclusive<usize> = 256..=4096;

/// The number of invocations that share a vocabulary: a power of two.
pub fn shares(vocabulary: usize) -> usize {
    vocabulary.next_power_of_two().clamp(*SHARES.start(), *SHARES.end())
}

impl Op for SamplePartial {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sample_partial"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("sample_partial", inputs, &[Some(DType::F32), Some(DType::U32), Some(DType::U32)])?;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let shares = shares(vocabulary);
        let lengths = [inputs[1].shape.elements(), inputs[2].shape.elements()];
        if lengths != [SamplerRow::WORDS * rows, 4 * rows] {
            bail!(ShapeMismatch, "sample_partial: settings and state of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![Desc::f32(&[rows, shares]), Desc::u32(&[rows, shares])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let shares = shares(vocabulary) as u32;
        Ok(Kernel {
            template: crate::shader!("sample_partial.wgsl"),
            modules: &[
                ("sampler_row", SamplerRow::WGSL),
                ("gumbel", crate::shader!("../../wgsl/gumbel.wgsl")),
                ("pcg3d", PCG3D),
            ],
            defines: vec![("SHARES", Define::U32(shares))],
            params: vec![vocabulary as u32],
            grid: [shares / 64, rows as u32, 1],
        })
    }
}

impl Reference for SamplePartial {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, one_row)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let ([logits, settings, state], [values, tokens]) = (&inputs[..], &mut outputs[..]) else {
            bail!(Internal, "sample_partial with {} inputs", inputs.len())
        };
        let (rows, _) = logits.desc.shape.matrix()?;
        let (logits, settings, state) = (logits.f32s()?, settings.u32s()?, state.u32s()?);
        let (values, tokens) = (values.f32s_mut()?, tokens.u32s_mut()?);
        let mut are_numbers = true;
        for at in 0..rows {
            let row = SamplerRow::of_row(settings, rows, at)?;
            are_numbers &= fits(best_of_shares(
                of_row(logits, rows, at),
                row.inverse_temperature,
                row.noise_key(of_row(state, rows, at)[1]),
                of_row_mut(values, rows, at),
                of_row_mut(tokens, rows, at),
            ))?;
        }
        if are_numbers { Ok(()) } else { by_reference(self, tensors) }
    }
}

fn one_row(inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
    let logits = inputs[0].to_f32()?;
    let row = SamplerRow::read(&inputs[1])?;
    let step = inputs[2].to_u32()?[1];
    let shares = shares(logits.len());
    let mut values = vec![f32::MIN; shares];
    let mut tokens = vec![0u32; shares];
    for share in 0..shares {
        for token in (share..logits.len()).step_by(shares) {
            let mut value = logits[token];
            if value.is_nan() {
                tokens[share] = u32::MAX;
                break;
            }
            if value <= f32::MIN {
                // Masked tokens stay below all others.
                value = f32::MIN;
            } else if row.inverse_temperature > 0.0 {
                value = value * row.inverse_temperature + gumbel([row.seed_low ^ token as u32, row.seed_high, step]);
            }
            if token == share || value > values[share] {
                (values[share], tokens[share]) = (value, token as u32);
            }
        }
    }
    Ok(vec![HostTensor::f32(&[1, shares], &values), HostTensor::u32(&[1, shares], &tokens)])
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(11);
    let mut cases = Vec::new();
    let row = |temperature, seed| SamplerRow::new(&SamplingParams { temperature, seed, ..SamplingParams::default() });
    for (vocabulary, temperature, seed) in [
        (1, 0.0, 0),
        (256, 0.7, 3),
        (257, 0.0, 0),
        (5003, 0.0, 0),
        (262_208, 0.0, 0),
        (257, 1.0, 7),
        (32_003, 0.8, (1 << 40) | 9),
    ] {
        let inputs = vec![
            rng.tensor(&[1, vocabulary]),
            SamplerRow::tensor(&[row(temperature, seed)]),
            HostTensor::u32(&[4], &[5, 3, 0, 0]),
        ];
        cases.push(Case::new(SamplePartial, inputs, 1e-5));
    }
    // Three sequences.
    let settings = SamplerRow::tensor(&[row(0.0, 1), row(1.0, 5 | 6 << 32), row(1.4, 8)]);
    let state = [5, 3, 0, 0, 9, 0, 0, 1, 2, 70, 0, 2];
    let inputs = vec![rng.tensor(&[3, 5003]), settings, HostTensor::u32(&[3, 4], &state)];
    cases.push(Case::new(SamplePartial, inputs, 1e-5));
    // Equal logits: the first wins. One NaN: its share reports it.
    let settings = SamplerRow::tensor(&[row(0.0, 0)]);
    let state = HostTensor::u32(&[4], &[0; 4]);
    let flat = HostTensor::f32(&[1, 3001], &[1.5; 3001]);
    cases.push(Case::new(SamplePartial, vec![flat, settings.clone(), state.clone()], 0.0));
    // Masked tokens, by either number, at a temperature that would lift one of them.
    let masked: Vec<f32> =
        (0..9001).map(|i| if i % 5 == 0 { 2.0 } else { [f32::MIN, f32::NEG_INFINITY][i % 2] }).collect();
    let warm = SamplerRow::tensor(&[row(2.0, 3)]);
    cases.push(Case::new(SamplePartial, vec![HostTensor::f32(&[1, 9001], &masked), warm, state.clone()], 1e-5));
    let mut broken = vec![0.25f32; 3001];
    broken[2500] = f32::NAN;
    cases.push(Case::new(SamplePartial, vec![HostTensor::f32(&[1, 3001], &broken), settings, state], 0.0));
    cases
}
