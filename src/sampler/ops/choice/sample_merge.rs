//! Second half of choosing the next token: takes the best of all shares, writes it to the input of the next step and to a ring that
//! is read back, and updates the state. So the commands of every decode step are the same.

use super::sample_partial::SHARES;
use crate::error::Result;
use crate::sampler::params::SamplingParams;
use crate::sampler::path::SamplerPath;
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{advance, by_rows};
use crate::tensor::{Capabilities, Case, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: values [rows, shares] f32, tokens [rows, shares] u32, settings [rows, WORDS] u32 (`SamplerRow`), state [rows, 4] u32
/// (changed), token [rows] u32 (changed), ring [rows, n] u32 (changed at the step mod n). A row's state is the position of the next
/// token (+= advance), the step (+= 1), and whether the sequence has stopped: set if the token ends it by its settings or is a
/// NaN; from then on the row is not changed. If a share holds a NaN, or all hold only -∞, the token is u32::MAX.
#[derive(Clone)]
pub struct SampleMerge {
    /// Tokens that the step put into the KV cache.
    pub advance: usize,
    /// What the shares were chosen from: rows of sequences with another path are not changed.
    pub own: SamplerPath,
}

/// An invocation reads four shares at once.
fn workgroup(shares: usize) -> usize {
    (shares / 4).min(256)
}

impl Op for SampleMerge {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sample_merge"
    }

    fn mutates(&self) -> &'static [usize] {
        &[3, 4, 5]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let u32 = Some(DType::U32);
        expect("sample_merge", inputs, &[Some(DType::F32), u32, u32, u32, u32, u32])?;
        let rows = inputs[4].shape.elements();
        let lengths = [0, 1, 2, 3].map(|input| inputs[input].shape.elements());
        let shares = lengths[0] / rows.max(1);
        let wanted = [shares, shares, SamplerRow::WORDS, 4].map(|words| words * rows);
        if !(shares.is_power_of_two() && SHARES.contains(&shares)) {
            bail!(
                ShapeMismatch,
                "sample_merge: {rows} rows have {shares} shares each, wanted a power of two of {SHARES:?}"
            );
        }
        if lengths != wanted || !inputs[5].shape.elements().is_multiple_of(rows) {
            bail!(
                ShapeMismatch,
                "sample_merge: values, tokens, settings and state of {rows} rows have {lengths:?} elements"
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let rows = inputs[4].shape.elements();
        let shares = inputs[0].shape.elements() / rows;
        let number = |n: usize| Define::U32(n as u32);
        Ok(Kernel {
            template: crate::shader!("sample_merge.wgsl"),
            modules: &[
                ("sampler_row", SamplerRow::WGSL),
                ("sampler_paths", SamplerPath::WGSL),
                ("advance", crate::shader!("../../wgsl/advance.wgsl")),
            ],
            defines: vec![("SHARES", number(shares)), ("WORKGROUP", number(workgroup(shares)))],
            params: vec![self.advance as u32, (inputs[5].shape.elements() / rows) as u32, self.own as u32],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for SampleMerge {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[4].shape.elements(), inputs, |inputs| {
            let values = inputs[0].to_f32()?;
            let tokens = inputs[1].to_u32()?;
            let mut best = (values[0], tokens[0]);
            for (value, token) in values.into_iter().zip(tokens.iter().copied()) {
                if value > best.0 || (value == best.0 && token < best.1) {
                    best = (value, token);
                }
            }
            let is_nothing = best.0 <= f32::MIN || tokens.contains(&u32::MAX);
            let token = if is_nothing { u32::MAX } else { best.1 };
            let row = SamplerRow::read(&inputs[2])?;
            let mut sequence = [3, 4, 5].map(|input| inputs[input].to_u32().unwrap_or_default());
            let [state, next, ring] = &mut sequence;
            advance(&row, [state, next, ring], token, self.advance as u32, self.own);
            for (input, words) in inputs[3..].iter_mut().zip(sequence) {
                input.set_u32(&words);
            }
            Ok(vec![])
        })
    }
}

pub fn cases() -> Vec<Case> {
    [*SHARES.end(), 1024, *SHARES.start()].into_iter().flat_map(cases_of).collect()
}

fn cases_of(shares: usize) -> Vec<Case> {
    let mut rng = Rng(12);
    let greedy = SamplerRow::new(&SamplingParams::greedy());
    let tokens: Vec<u32> = (0..shares as u32).collect();
    let ascending: Vec<f32> = (0..shares).map(|i| i as f32).collect();
    let last = shares as u32 - 1;
    let mut cases: Vec<Case> = (0..7)
        .map(|kind| {
            let mut tokens = tokens.clone();
            let mut values = rng.tensor(&[1, shares]);
            match kind {
                // The best in the last share.
                1 => values.set_f32(&ascending),
                // All equal: the smallest token wins, in any share.
                2 => {
                    values.set_f32(&vec![0.5; shares]);
                    tokens.reverse();
                }
                3 => tokens[shares - 99] = u32::MAX,
                // Nothing to choose from, and shares without a token.
                6 => values.set_f32(&[vec![f32::NEG_INFINITY; 200], vec![f32::MIN; shares - 200]].concat()),
                _ => {}
            }
            let inputs = vec![
                values,
                HostTensor::u32(&[1, shares], &tokens),
                SamplerRow::tensor(&[greedy]),
                HostTensor::u32(&[4], &[11, 64 + kind, 0, 0]),
                HostTensor::u32(&[1], &[0]),
                HostTensor::u32(&[64], &[9; 64]),
            ];
            Case::new(SampleMerge { advance: 1 + kind as usize * 5, own: SamplerPath::Whole }, inputs, 0.0)
        })
        .collect();
    // Sequences that continue, that end with a token or by length, that ended before, and that have other kernels.
    let settings = [
        greedy.ending(9, &[1, 2, last - 1], SamplerPath::Whole),
        greedy.ending(9, &[1, 2, last], SamplerPath::Any),
        greedy.ending(8, &[], SamplerPath::Whole),
        greedy.ending(9, &[last], SamplerPath::Whole),
        greedy.ending(9, &[last], SamplerPath::Truncated),
    ];
    let rows = settings.len();
    let state: Vec<u32> = (0..rows as u32).flat_map(|row| [20 + row, 7, u32::from(row == 3), row]).collect();
    let inputs = vec![
        HostTensor::f32(&[rows, shares], &ascending.repeat(rows)),
        HostTensor::u32(&[rows, shares], &tokens.repeat(rows)),
        SamplerRow::tensor(&settings),
        HostTensor::u32(&[rows, 4], &state),
        HostTensor::u32(&[rows], &[0, 1, 2, 3, 4]),
        HostTensor::u32(&[rows, 5], &vec![9; 5 * rows]),
    ];
    for own in [SamplerPath::Whole, SamplerPath::Banded] {
        cases.push(Case::new(SampleMerge { advance: 1, own }, inputs.clone(), 0.0));
    }
    cases
}
