//! First step of adjusting logits (`sampler/adjustment.rs`): the step's token goes into the history, and each token of the vocabulary
//! is marked with how often the text holds it and whether it is banned now.

use crate::error::Result;
use crate::sampler::adjustment::{AdjustLists, BANNED, IN_WINDOW, defines, length_of, modules};
use crate::sampler::params::{Dry, Penalties, SamplingParams};
use crate::sampler::row::SamplerRow;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::truncation::by_rows;
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu,
};

/// Inputs: settings [rows, WORDS] u32 (`SamplerRow`), lists [rows, WORDS] u32 (`AdjustLists`), state [rows, 4] u32 (a row's first
/// words: its position before the step, and its step), token [rows] u32, history [rows, capacity] u32 (changed), marks
/// [rows, 2 · vocabulary] u32 (changed: the first half, which is zero before).
#[derive(Clone)]
pub struct AdjustMarks {
    /// Tokens that the step puts into the KV cache.
    pub advance: usize,
    /// The step has one token, in `token`; otherwise the history already holds the tokens.
    pub appends: bool,
}

/// Workgroups that share the text of a row.
const GROUPS: usize = 16;

impl Op for AdjustMarks {
    on_cpu!();

    fn name(&self) -> &'static str {
        "adjust_marks"
    }

    fn mutates(&self) -> &'static [usize] {
        &[4, 5]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("adjust_marks", inputs, &[Some(DType::U32); 6])?;
        let rows = inputs[3].shape.elements();
        let lengths = [0, 1, 2].map(|input| inputs[input].shape.elements());
        let wanted = [SamplerRow::WORDS, AdjustLists::WORDS, 4].map(|words| words * rows);
        let divides = [4, 5].map(|input| inputs[input].shape.elements().is_multiple_of(rows));
        if lengths != wanted || divides != [true; 2] || (self.appends && self.advance != 1) {
            bail!(ShapeMismatch, "adjust_marks: settings, lists and state of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let rows = inputs[3].shape.elements();
        let number = |n: usize| Define::U32(n as u32);
        let capacity = inputs[4].shape.elements() / rows;
        let vocabulary = inputs[5].shape.elements() / rows / 2;
        Ok(Kernel {
            template: crate::shader!("adjust_marks.wgsl"),
            modules: modules(),
            defines: [defines(), vec![("GROUPS", number(GROUPS)), ("LISTS", number(AdjustLists::WORDS))]].concat(),
            params: vec![vocabulary as u32, capacity as u32, self.advance as u32, u32::from(self.appends)],
            grid: [GROUPS as u32, rows as u32, 1],
        })
    }
}

impl Reference for AdjustMarks {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[3].shape.elements(), inputs, |inputs| {
            let row = SamplerRow::read(&inputs[0])?;
            let [lists, state, token, mut history, mut marks] =
                [1, 2, 3, 4, 5].map(|input| inputs[input].to_u32().unwrap_or_default());
            self.mark(&row, [&lists, &state, &token], [&mut history, &mut marks]);
            inputs[4].set_u32(&history);
            inputs[5].set_u32(&marks);
            Ok(vec![])
        })
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [settings, lists, state, token, history, marks] = &mut tensors.inputs[..] else {
            bail!(Internal, "adjust_marks without six inputs")
        };
        let rows = token.desc.shape.elements();
        for at in 0..rows {
            let row = SamplerRow::of_row(settings.u32s()?, rows, at)?;
            let given = [lists.u32s()?, state.u32s()?, token.u32s()?].map(|words| of_row(words, rows, at));
            let changed = [history.u32s_mut()?, marks.u32s_mut()?].map(|words| of_row_mut(words, rows, at));
            self.mark(&row, given, changed);
        }
        Ok(())
    }
}

impl AdjustMarks {
    /// Of one row.
    fn mark(&self, row: &SamplerRow, [lists, state, token]: [&[u32]; 3], [history, marks]: [&mut [u32]; 2]) {
        let length = length_of(state, self.advance, history.len());
        let vocabulary = marks.len() / 2;
        if self.appends && length > 0 {
            history[length - 1] = token[0];
        }
        let text = &history[..length];
        let before = length - length.min(row.penalty_window as usize);
        for (position, token) in text.iter().enumerate().skip(before) {
            let token = *token as usize;
            if token < vocabulary {
                marks[token] |= IN_WINDOW;
                marks[token] += u32::from(position >= row.answer_start as usize);
            }
        }
        let (ends, sequences) = (lists[0] as usize, lists[1] as usize);
        if state[1] < row.min_tokens {
            for end in &lists[2..2 + ends] {
                marks[*end as usize] |= BANNED;
            }
        }
        let starts = &lists[2 + ends..2 + ends + sequences + 1];
        for bounds in starts.windows(2) {
            let sequence = &lists[bounds[0] as usize..bounds[1] as usize];
            let (last, before) = sequence.split_last().unwrap_or((&0, &[]));
            if text.ends_with(before) {
                marks[*last as usize] |= BANNED;
            }
        }
    }
}

/// Changes nothing.
pub(super) fn neutral() -> SamplerRow {
    SamplerRow::new(&SamplingParams::default())
}

pub(super) fn settings() -> Vec<SamplerRow> {
    let row = |penalties, dry| SamplerRow::new(&SamplingParams { penalties, dry, ..SamplingParams::default() });
    let (none, no_dry) = (Penalties::default(), Dry::default());
    let all = Penalties { repetition: 0.7, frequency: 2.0, presence: 1.5, ..none };
    vec![
        neutral(),
        SamplerRow { min_tokens: 4, ..row(Penalties { repetition: 1.3, ..none }, no_dry) },
        SamplerRow {
            answer_start: 20,
            ..row(Penalties { frequency: 0.4, presence: -0.3, window: 37, ..none }, no_dry)
        },
        SamplerRow { answer_start: 3, min_tokens: 3, ..row(all, Dry { multiplier: 0.8, ..no_dry }) },
    ]
}

/// A text with few different tokens, so that much of it repeats.
pub(super) fn history(rng: &mut Rng, capacity: usize, tokens: usize) -> Vec<u32> {
    (0..capacity).map(|_| rng.below(tokens) as u32).collect()
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(81);
    let mut cases = Vec::new();
    for (vocabulary, capacity, length) in
        [(7usize, 64usize, 40usize), (257, 4099, 3001), (128_256, 512, 1), (262_147, 5003, 5003)]
    {
        for (index, settings) in settings().into_iter().enumerate() {
            let history = history(&mut rng, capacity, vocabulary.min(50));
            // One that the text ends with, one that it does not, a single token.
            let mut ended = history[length.saturating_sub(3)..length - 1].to_vec();
            ended.extend([5, 6]);
            let mut without_last = ended.clone();
            without_last.remove(ended.len() - 2);
            let lists = AdjustLists::words(&[1, vocabulary as u32 - 1], &[ended, without_last, vec![3], vec![2; 70]]);
            let appends = index % 2 == 0;
            let advance = if appends { 1 } else { length.min(9) };
            let state = [(length - advance) as u32, 3, 0, 0];
            let inputs = vec![
                SamplerRow::tensor(&[settings]),
                HostTensor::u32(&[1, AdjustLists::WORDS], &lists.unwrap_or_default()),
                HostTensor::u32(&[1, 4], &state),
                HostTensor::u32(&[1], &[5]),
                HostTensor::u32(&[1, capacity], &history),
                HostTensor::u32(&[1, 2 * vocabulary], &vec![0; 2 * vocabulary]),
            ];
            cases.push(Case::new(AdjustMarks { advance, appends }, inputs, 0.0));
        }
    }
    // Four sequences, one of them past its end.
    let (vocabulary, capacity) = (31, 300);
    let lists = AdjustLists::words(&[4], &[vec![9, 8]]).unwrap_or_default().repeat(4);
    let state = [10, 5, 0, 0, 300, 2, 1, 1, 299, 0, 0, 2, 0, 2, 0, 3];
    let inputs = vec![
        SamplerRow::tensor(&settings()),
        HostTensor::u32(&[4, AdjustLists::WORDS], &lists),
        HostTensor::u32(&[4, 4], &state),
        HostTensor::u32(&[4], &[9, 9, 9, 30]),
        HostTensor::u32(&[4, capacity], &history(&mut rng, 4 * capacity, 31)),
        HostTensor::u32(&[4, 2 * vocabulary], &vec![0; 8 * vocabulary]),
    ];
    cases.push(Case::new(AdjustMarks { advance: 1, appends: true }, inputs, 0.0));
    cases
}
