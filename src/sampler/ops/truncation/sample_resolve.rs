//! Last step of truncated sampling (`sampler/truncation.rs`): the exact thresholds, and the token. Like `sample_merge` it
//! writes the token to the input of the next step and to a ring that is read back, and updates the state.

use super::sample_split::{SampleSplit, split_inputs};
use crate::error::Result;
use crate::sampler::path::SamplerPath;
use crate::sampler::row::SamplerRow;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::truncation::{
    BORDER, Border, MAX_GROUPS, NONE, REST, advance, by_rows, candidates_of, defines, depth_of, is_no_logit,
    least_key_of, mass_bits, modules,
};
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu,
};

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

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [logits, settings, values, tokens, border, state, next, ring] = &mut tensors.inputs[..] else {
            bail!(Internal, "sample_resolve without eight inputs")
        };
        let (rows, _) = logits.desc.shape.matrix()?;
        for at in 0..rows {
            let given = Given {
                logits: of_row(logits.f32s()?, rows, at),
                row: SamplerRow::of_row(settings.u32s()?, rows, at)?,
                values: of_row(values.f32s()?, rows, at),
                tokens: of_row(tokens.u32s()?, rows, at),
                border: of_row(border.u32s()?, rows, at),
            };
            let sequence = [state.u32s_mut()?, next.u32s_mut()?, ring.u32s_mut()?];
            self.resolve(&given, sequence.map(|words| of_row_mut(words, rows, at)));
        }
        Ok(())
    }
}

/// Of one row what is read.
struct Given<'a> {
    logits: &'a [f32],
    row: SamplerRow,
    values: &'a [f32],
    tokens: &'a [u32],
    border: &'a [u32],
}

impl SampleResolve {
    fn reference_of_row(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (logits, values) = (inputs[0].to_f32()?, inputs[2].to_f32()?);
        let [tokens, border] = [3, 4].map(|input| inputs[input].to_u32().unwrap_or_default());
        let row = SamplerRow::read(&inputs[1])?;
        let given = Given { logits: &logits, row, values: &values, tokens: &tokens, border: &border };
        let mut sequence = [5, 6, 7].map(|input| inputs[input].to_u32().unwrap_or_default());
        let [state, next, ring] = &mut sequence;
        self.resolve(&given, [state, next, ring]);
        for (input, words) in inputs[5..].iter_mut().zip(sequence) {
            input.set_u32(&words);
        }
        Ok(vec![])
    }

    /// Chooses among few, so that this is fast enough for the CPU.
    fn resolve(&self, given: &Given<'_>, sequence: [&mut [u32]; 3]) {
        let Given { logits, row, values, tokens, border: border_words } = given;
        let border = Border::of(border_words);
        let step = sequence[0][1];
        let candidates = candidates_of(border_words, logits);
        let depth = |key: u32| depth_of(key, border.largest, row.octaves);
        let bin = |key: u32| if depth(key) >= REST { NONE } else { depth(key) >> border.shift };
        let least_key = least_key_of(border_words, logits, row);

        let sure = values.iter().copied().zip(tokens.iter().copied());
        let drawn = candidates
            .iter()
            .filter(|(key, _)| border.drawn_from(bin(*key)) && *key >= least_key && depth(*key) <= row.min_p_depth);
        let drawn = drawn.map(|(key, token)| (row.value(*key, border.largest, *token, step), *token));
        let best = sure
            .filter(|(_, token)| *token != NONE)
            .chain(drawn)
            .reduce(|a, b| if b.0 > a.0 || (b.0 == a.0 && b.1 < a.1) { b } else { a });
        let token = if is_no_logit(border.largest) { NONE } else { best.map_or(NONE, |best| best.1) };
        advance(row, sequence, token, self.advance as u32, SamplerPath::Truncated);
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
