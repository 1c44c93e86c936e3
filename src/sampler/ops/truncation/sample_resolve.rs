//! Last step of truncated sampling (`sampler/truncation.rs`): the exact thresholds, and the token. Like `sample_merge` it
//! writes the token to the input of the next step and to a ring that is read back, and updates the state.

use super::sample_split::{SampleSplit, split_inputs};
use crate::error::Result;
use crate::sampler::path::SamplerPath;
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{
    BORDER, Border, MAX_GROUPS, NONE, REST, advance, by_rows, candidates_of, defines, depth_of, is_no_logit,
    least_key_of, mass_bits, modules,
};
use crate::tensor::{Capabilities, Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32, values [rows, MAX_GROUPS] f32, tokens [rows, MAX_GROUPS] u32, border
/// [rows, BORDER] u32, state [rows, 4] u32 (changed), token [rows] u32 (changed), ring [rows, n] u32 (changed), as `sample_merge`
/// changes them. With a NaN among the logits, or only -∞ and the lowest finite number, the token is u32::MAX.
#[derive(Clone)]
pub struct SampleResolve {
    /// Tokens that the step put into the KV cache.
    pub advance: usize,
}

impl Op for SampleResolve {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sample_resolve"
    }

    fn mutates(&self) -> &'static [usize] {
        &[5, 6, 7]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("sample_resolve", inputs, &[f32, u32, f32, u32, u32, u32, u32, u32])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [1, 2, 3, 4, 5, 6].map(|input| inputs[input].shape.elements());
        let wanted = [SamplerRow::WORDS, MAX_GROUPS, MAX_GROUPS, BORDER, 4, 1].map(|words| words * rows);
        if lengths != wanted || !inputs[7].shape.elements().is_multiple_of(rows) {
            bail!(
                ShapeMismatch,
                "sample_resolve: settings, values, tokens, border, state and token of {rows} rows have {lengths:?} elements"
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("sample_resolve.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![
                vocabulary as u32,
                mass_bits(vocabulary),
                self.advance as u32,
                (inputs[7].shape.elements() / rows) as u32,
            ],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for SampleResolve {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| self.reference_of_row(inputs))
    }
}

impl SampleResolve {
    fn reference_of_row(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let logits = inputs[0].to_f32()?;
        let row = SamplerRow::read(&inputs[1])?;
        let border_words = inputs[4].to_u32()?;
        let border = Border::of(&border_words);
        let mut state = inputs[5].to_u32()?;
        let candidates = candidates_of(&border_words, &logits);
        let depth = |key: u32| depth_of(key, border.largest, row.octaves);
        let bin = |key: u32| if depth(key) >= REST { NONE } else { depth(key) >> border.shift };
        let least_key = least_key_of(&border_words, &logits, &row);

        let sure = inputs[2].to_f32()?.into_iter().zip(inputs[3].to_u32()?);
        let drawn = candidates
            .iter()
            .filter(|(key, _)| border.drawn_from(bin(*key)) && *key >= least_key && depth(*key) <= row.min_p_depth);
        let drawn = drawn.map(|(key, token)| (row.value(*key, border.largest, *token, state[1]), *token));
        let best = sure
            .filter(|(_, token)| *token != NONE)
            .chain(drawn)
            .reduce(|a, b| if b.0 > a.0 || (b.0 == a.0 && b.1 < a.1) { b } else { a });
        let token = if is_no_logit(border.largest) { NONE } else { best.map_or(NONE, |best| best.1) };
        let mut ring = inputs[7].to_u32()?;
        let mut next = inputs[6].to_u32()?;
        let sequence: [&mut [u32]; 3] = [&mut state, &mut next, &mut ring];
        advance(&row, sequence, token, self.advance as u32, SamplerPath::Truncated);
        inputs[5].set_u32(&state);
        inputs[6].set_u32(&next);
        inputs[7].set_u32(&ring);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let cases = split_inputs(&mut Rng(44)).unwrap_or_default().into_iter().enumerate().map(|(index, mut inputs)| {
        let outputs = SampleSplit.reference(&mut inputs)?;
        let [logits, settings, state, _] = inputs;
        let rows = state.shape.matrix()?.0;
        let ring = HostTensor::u32(&[rows, 64], &vec![9; rows * 64]);
        let rest = [state, HostTensor::u32(&[rows], &vec![0; rows]), ring];
        let inputs = [logits, settings].into_iter().chain(outputs).chain(rest).collect();
        Ok(Case::new(SampleResolve { advance: 1 + index * 5 }, inputs, 0.0))
    });
    cases.collect::<Result<_>>().unwrap_or_default()
}
