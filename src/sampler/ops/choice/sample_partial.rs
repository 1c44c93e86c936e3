//! First half of choosing the next token: each of many invocations finds the best of its share of the vocabulary.
//!
//! Greedy takes the largest logit, the first among equals. With a temperature T it takes the largest of logit / T + g with
//! Gumbel noise g, which draws from softmax(logits / T) exactly (the Gumbel-max trick; Maddison et al. 2014) without a pass
//! over the vocabulary for the sum. The noise is a hash of seed, step and token (pcg3d; Jarzynski, Olano 2020), so the same
//! seed gives the same tokens.

use crate::error::Result;
use crate::sampler::truncation::{by_rows, gumbel};
use crate::tensor::ops::PCG3D;
use crate::tensor::{Capabilities, Case, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect};

/// Inputs: logits [rows, vocabulary], settings [rows, n] u32 (a row's first words: 1 / temperature as f32 bits, zero bits for
/// greedy; seed, low and high word), state [rows, 4] u32 (a row's second word is its step). Outputs: values [rows, SHARES] f32,
/// tokens [rows, SHARES] u32; a share that holds a NaN says u32::MAX.
pub struct SamplePartial;

/// Invocations that share the vocabulary.
pub const SHARES: usize = 4096;

impl Op for SamplePartial {
    fn name(&self) -> &'static str {
        "sample_partial"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("sample_partial", inputs, &[Some(DType::F32), Some(DType::U32), Some(DType::U32)])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [inputs[1].shape.elements(), inputs[2].shape.elements()];
        if lengths[1] != 4 * rows || !lengths[0].is_multiple_of(rows) || lengths[0] < 3 * rows {
            bail!(ShapeMismatch, "sample_partial: settings and state of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![Desc::f32(&[rows, SHARES]), Desc::u32(&[rows, SHARES])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: include_str!("sample_partial.wgsl"),
            modules: &[("gumbel", include_str!("../../wgsl/gumbel.wgsl")), ("pcg3d", PCG3D)],
            defines: vec![("SHARES", Define::U32(SHARES as u32))],
            params: vec![vocabulary as u32, (inputs[1].shape.elements() / rows) as u32],
            grid: [(SHARES / 64) as u32, rows as u32, 1],
        })
    }
}

impl Reference for SamplePartial {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, one_row)
    }
}

fn one_row(inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
    let logits = inputs[0].to_f32()?;
    let settings = inputs[1].to_u32()?;
    let step = inputs[2].to_u32()?[1];
    let inverse_temperature = f32::from_bits(settings[0]);
    let mut values = vec![f32::MIN; SHARES];
    let mut tokens = vec![0u32; SHARES];
    for share in 0..SHARES {
        for token in (share..logits.len()).step_by(SHARES) {
            let mut value = logits[token];
            if value.is_nan() {
                tokens[share] = u32::MAX;
                break;
            }
            if value <= f32::MIN {
                // What is masked stays below everything.
                value = f32::MIN;
            } else if inverse_temperature > 0.0 {
                value = value * inverse_temperature + gumbel([settings[1] ^ token as u32, settings[2], step]);
            }
            if token == share || value > values[share] {
                (values[share], tokens[share]) = (value, token as u32);
            }
        }
    }
    Ok(vec![HostTensor::f32(&[1, SHARES], &values), HostTensor::u32(&[1, SHARES], &tokens)])
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(11);
    let mut cases = Vec::new();
    for (vocabulary, inverse_temperature, seed) in [
        (1, 0.0f32, 0u64),
        (257, 0.0, 0),
        (5003, 0.0, 0),
        (262_208, 0.0, 0),
        (257, 1.0, 7),
        (32_003, 1.25, (1 << 40) | 9),
    ] {
        let inputs = vec![
            rng.tensor(&[1, vocabulary]),
            HostTensor::u32(&[4], &[inverse_temperature.to_bits(), seed as u32, (seed >> 32) as u32, 0]),
            HostTensor::u32(&[4], &[5, 3, 0, 0]),
        ];
        cases.push(Case::new(SamplePartial, inputs, 1e-5));
    }
    // Three sequences.
    let settings: Vec<u32> =
        [[0.0f32.to_bits(), 1, 0, 0], [1.0f32.to_bits(), 5, 6, 0], [0.7f32.to_bits(), 8, 0, 0]].concat();
    let state = [5, 3, 0, 0, 9, 0, 0, 1, 2, 70, 0, 2];
    let inputs = vec![rng.tensor(&[3, 5003]), HostTensor::u32(&[3, 4], &settings), HostTensor::u32(&[3, 4], &state)];
    cases.push(Case::new(SamplePartial, inputs, 1e-5));
    // Equal logits: the first wins. One NaN: its share says so.
    let settings = HostTensor::u32(&[4], &[0; 4]);
    let state = HostTensor::u32(&[4], &[0; 4]);
    let flat = HostTensor::f32(&[1, 3001], &[1.5; 3001]);
    cases.push(Case::new(SamplePartial, vec![flat, settings.clone(), state.clone()], 0.0));
    // What is masked, by either number, at a temperature that would lift one of them.
    let masked: Vec<f32> =
        (0..9001).map(|i| if i % 5 == 0 { 2.0 } else { [f32::MIN, f32::NEG_INFINITY][i % 2] }).collect();
    let warm = HostTensor::u32(&[4], &[0.5f32.to_bits(), 3, 0, 0]);
    cases.push(Case::new(SamplePartial, vec![HostTensor::f32(&[1, 9001], &masked), warm, state.clone()], 1e-5));
    let mut broken = vec![0.25f32; 3001];
    broken[2500] = f32::NAN;
    cases.push(Case::new(SamplePartial, vec![HostTensor::f32(&[1, 3001], &broken), settings, state], 0.0));
    cases
}
