//! Last step of adjusting logits (`sampler/adjustment.rs`): logits with biases, bans, penalties and DRY, in a tensor of their own. The
//! order is that of llama.cpp: biases, the three penalties, DRY; a ban overrides them. Logits that are not finite stay as they are.

use rillm_cpu_kernels::{add, extremes, nonzero};

use crate::error::Result;
use crate::sampler::adjustment::{BANNED, IN_WINDOW, defines, modules};
use crate::sampler::row::SamplerRow;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::truncation::by_rows;
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, fits, on_cpu,
};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), biases [rows, vocabulary] (-∞ bans), marks
/// [rows, 2 · vocabulary] u32 (changed: to zero). Output: logits [rows, vocabulary].
#[derive(Clone)]
pub struct AdjustLogits;

impl Op for AdjustLogits {
    on_cpu!();

    fn name(&self) -> &'static str {
        "adjust_logits"
    }

    fn mutates(&self) -> &'static [usize] {
        &[3]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("adjust_logits", inputs, &[f32, u32, f32, u32])?;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let lengths = [1, 2, 3].map(|input| inputs[input].shape.elements());
        if lengths != [rows * SamplerRow::WORDS, rows * vocabulary, 2 * rows * vocabulary] {
            bail!(ShapeMismatch, "adjust_logits: logits {}, and the others {lengths:?} elements", inputs[0].shape);
        }
        Ok(vec![Desc::f32(&[rows, vocabulary])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("adjust_logits.wgsl"),
            modules: modules(),
            defines: defines(),
            params: vec![vocabulary as u32],
            grid: [vocabulary.div_ceil(256) as u32, rows as u32, 1],
        })
    }
}

impl Reference for AdjustLogits {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let biases = inputs[2].to_f32()?;
            let marks = inputs[3].to_u32()?;
            let (counts, repeated) = marks.split_at(logits.len());
            let of_token =
                |(token, logit): (usize, &f32)| adjusted(&row, *logit, biases[token], [counts[token], repeated[token]]);
            let adjusted: Vec<f32> = logits.iter().enumerate().map(of_token).collect();
            inputs[3].set_u32(&vec![0; marks.len()]);
            Ok(vec![HostTensor::f32(&[1, adjusted.len()], &adjusted)])
        })
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let ([logits, settings, biases, marks], [out]) = (&mut inputs[..], &mut outputs[..]) else {
            bail!(Internal, "adjust_logits with {} inputs", inputs.len())
        };
        let (rows, vocabulary) = logits.desc.shape.matrix()?;
        for at in 0..rows {
            let row = SamplerRow::of_row(settings.u32s()?, rows, at)?;
            let (logits, biases) = (of_row(logits.f32s()?, rows, at), of_row(biases.f32s()?, rows, at));
            let marks = of_row_mut(marks.u32s_mut()?, rows, at);
            let out = of_row_mut(out.f32s_mut()?, rows, at);
            out.copy_from_slice(logits);
            // A bias of -∞ bans, and what is no finite number stays as it is.
            match extremes(logits) {
                Some(_) => add(out, biases),
                None => {
                    for ((out, logit), bias) in out.iter_mut().zip(logits).zip(biases) {
                        *out = adjusted(&row, *logit, *bias, [0; 2]);
                    }
                }
            }
            for marked in fits(nonzero(marks))? {
                let token = marked as usize % vocabulary;
                out[token] = adjusted(&row, logits[token], biases[token], [marks[token], marks[vocabulary + token]]);
            }
            marks.fill(0);
        }
        Ok(())
    }
}

/// A logit with its bias and what its marks say.
fn adjusted(row: &SamplerRow, logit: f32, bias: f32, [counts, repeated]: [u32; 2]) -> f32 {
    if !logit.is_finite() {
        return logit;
    }
    if bias == f32::NEG_INFINITY || counts & BANNED != 0 {
        return f32::NEG_INFINITY;
    }
    let mut x = logit + bias;
    if counts & IN_WINDOW != 0 {
        x = if x > 0.0 { x / row.repetition_penalty } else { x * row.repetition_penalty };
    }
    let count = counts & !(IN_WINDOW | BANNED);
    if count > 0 {
        x -= count as f32 * row.frequency_penalty + row.presence_penalty;
    }
    if repeated > 0 {
        x -= row.dry_multiplier * row.dry_base.powi((repeated - row.dry_allowed_length) as i32);
    }
    x
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(83);
    let mut cases = Vec::new();
    for (rows, vocabulary) in [(1, 7), (1, 257), (2, 5003), (1, 128_256), (1, 151_937), (3, 262_147)] {
        let settings = super::adjust_marks::settings();
        // The last has DRY.
        let settings: Vec<SamplerRow> = (0..rows).map(|row| settings[3 - row]).collect();
        let elements = rows * vocabulary;
        let logits: Vec<f32> = (0..elements).map(|_| 20.0 * rng.signed()).collect();
        let biases: Vec<f32> = (0..elements).map(|i| if i % 3 == 0 { 100.0 * rng.signed() } else { 0.0 }).collect();
        let marks: Vec<u32> = (0..2 * elements)
            .map(|i| match (i / vocabulary % 2, rng.below(8)) {
                (0, 0) => IN_WINDOW,
                (0, 1) => IN_WINDOW | (1 + rng.below(9) as u32),
                (1, 2) if i / vocabulary < 2 => 2 + rng.below(12) as u32,
                _ => 0,
            })
            .collect();
        cases.push(Case::new(
            AdjustLogits,
            vec![
                HostTensor::f32(&[rows, vocabulary], &logits),
                SamplerRow::tensor(&settings),
                HostTensor::f32(&[rows, vocabulary], &biases),
                HostTensor::u32(&[rows, 2 * vocabulary], &marks),
            ],
            1e-6,
        ));
    }
    cases
}
