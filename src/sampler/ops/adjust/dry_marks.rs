//! DRY, "don't repeat yourself" (p-e-w 2024, https://github.com/oobabooga/text-generation-webui/pull/5677; llama.cpp has the same):
//! for each token, the length of the repetition that it would continue: how many tokens at the end of the text also come before one of
//! its earlier places. A sequence breaker ends the comparison; a token that is a breaker by itself is never marked.

use super::adjust_marks::{history, neutral, settings};
use crate::error::Result;
use crate::sampler::adjustment::{DryBreakerWords, length_of, modules};
use crate::sampler::params::{Dry, SamplingParams};
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::by_rows;
use crate::tensor::{Capabilities, Case, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: settings [rows, WORDS] u32 (`SamplerRow`), state [rows, 4] u32 (a row's first word: its position before the step),
/// history [rows, capacity] u32, breakers [rows, vocabulary + TABLE] u32 (`DryBreakerWords`), marks [rows, 2 · vocabulary] u32 (changed: the
/// second half, which is zero before).
#[derive(Clone)]
pub struct DryMarks {
    /// Tokens that the step puts into the KV cache.
    pub advance: usize,
}

/// Workgroups that share the text of a row.
const GROUPS: usize = 16;

impl Op for DryMarks {
    on_cpu!();

    fn name(&self) -> &'static str {
        "dry_marks"
    }

    fn mutates(&self) -> &'static [usize] {
        &[4]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("dry_marks", inputs, &[Some(DType::U32); 5])?;
        let rows = inputs[0].shape.elements() / SamplerRow::WORDS;
        let lengths = [0, 1, 2, 3, 4].map(|input| inputs[input].shape.elements());
        let words = DryBreakerWords::words_of(lengths[4].checked_div(2 * rows).unwrap_or(0));
        let fits = rows > 0
            && lengths[0] == rows * SamplerRow::WORDS
            && lengths[1] == rows * 4
            && lengths[2].is_multiple_of(rows)
            && lengths[3] == rows * words
            && lengths[4].is_multiple_of(2 * rows);
        if !fits {
            bail!(ShapeMismatch, "dry_marks: inputs of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let rows = inputs[0].shape.elements() / SamplerRow::WORDS;
        let capacity = inputs[2].shape.elements() / rows;
        let vocabulary = inputs[4].shape.elements() / rows / 2;
        Ok(Kernel {
            template: crate::shader!("dry_marks.wgsl"),
            modules: modules(),
            defines: vec![
                ("GROUPS", Define::U32(GROUPS as u32)),
                ("TABLE", Define::U32(DryBreakerWords::TABLE as u32)),
                ("BREAKS", Define::U32(DryBreakerWords::BREAKS)),
            ],
            params: vec![vocabulary as u32, capacity as u32, self.advance as u32],
            grid: [GROUPS as u32, rows as u32, 1],
        })
    }
}

impl Reference for DryMarks {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.elements() / SamplerRow::WORDS, inputs, |inputs| {
            let row = SamplerRow::read(&inputs[0])?;
            let [state, history, breakers, mut marks] =
                [1, 2, 3, 4].map(|input| inputs[input].to_u32().unwrap_or_default());
            let vocabulary = marks.len() / 2;
            let length = length_of(&state, self.advance, history.len());
            let text = &history[length - length.min(row.dry_window as usize)..length];
            let (of_tokens, table) = breakers.split_at(vocabulary);
            let breaks = |token: u32| of_tokens[token as usize] & DryBreakerWords::BREAKS != 0;
            // The rests that end a repetition together with a token.
            let rests = |token: u32| {
                let list = (of_tokens[token as usize] & !DryBreakerWords::BREAKS) as usize;
                let starts = if list == 0 { 0..0 } else { table[list] as usize..table[list + 1] as usize };
                starts.map(|at| table[at] as usize).map(|at| &table[at + 1..][..table[at] as usize])
            };
            // After the last breaker, which may begin before the window.
            let mut last_end = 0;
            for at in 0..length {
                let after = &history[at + 1..length];
                let ends = rests(history[at]).filter(|rest| after.starts_with(rest)).map(<[u32]>::len).max();
                let single = breaks(history[at]).then_some(0);
                last_end = last_end.max(ends.max(single).map_or(0, |count| at + 1 + count));
            }
            let comparable = (length - last_end).min(text.len()).min(row.dry_longest as usize);
            for (end, next) in text.iter().enumerate().skip(1) {
                let pairs = text[..end].iter().rev().zip(text.iter().rev()).take(comparable);
                let repeated = pairs.take_while(|(earlier, last)| earlier == last).count() as u32;
                if repeated >= row.dry_allowed_length && !breaks(*next) {
                    let mark = &mut marks[vocabulary + *next as usize];
                    *mark = (*mark).max(repeated);
                }
            }
            inputs[4].set_u32(&marks);
            Ok(vec![])
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(82);
    let mut cases = Vec::new();
    let dry = settings()[3];
    let row = |dry| SamplerRow::new(&SamplingParams { dry, ..SamplingParams::default() });
    let slow = Dry { multiplier: 0.8, base: 1.01, ..Dry::default() };
    for (vocabulary, capacity, length, different, breaker, settings) in [
        (7, 64, 40, 2, 6, dry),
        (257, 4099, 3001, 3, 2, dry),
        // A text of one token: everything repeats, as far as it is followed.
        (257, 2003, 2003, 1, 5, row(slow)),
        (257, 2003, 1501, 1, 5, row(Dry { window: 400, ..slow })),
        (128_256, 512, 1, 3, 7, dry),
        (262_147, 5003, 5003, 4, 99, row(Dry { window: 1501, allowed_length: 3, base: 1.75, ..slow })),
        (31, 300, 300, 2, 9, neutral()),
    ] {
        let mut history = history(&mut rng, capacity, different);
        // The last breaker is a while ago.
        if length > 90 && different > 1 {
            history[length - 80] = breaker;
        }
        let breakers = DryBreakerWords::words(vocabulary, &[breaker], &[], &[], &[]).unwrap_or_default();
        let advance = length.min(4);
        let inputs = vec![
            SamplerRow::tensor(&[settings]),
            HostTensor::u32(&[1, 4], &[(length - advance) as u32, 3, 0, 0]),
            HostTensor::u32(&[1, capacity], &history),
            HostTensor::u32(&[1, breakers.len()], &breakers),
            HostTensor::u32(&[1, 2 * vocabulary], &vec![0; 2 * vocabulary]),
        ];
        cases.push(Case::new(DryMarks { advance }, inputs, 0.0));
    }
    // Three sequences; the second has none, the third is past its end.
    let breakers: Vec<u32> =
        [2, 3, 0].iter().flat_map(|id| DryBreakerWords::words(61, &[*id], &[], &[], &[]).unwrap_or_default()).collect();
    let inputs = vec![
        SamplerRow::tensor(&[dry, neutral(), dry]),
        HostTensor::u32(&[3, 4], &[99, 0, 0, 0, 150, 3, 0, 1, 200, 0, 1, 2]),
        HostTensor::u32(&[3, 200], &history(&mut rng, 600, 2)),
        HostTensor::u32(&[3, DryBreakerWords::words_of(61)], &breakers),
        HostTensor::u32(&[3, 2 * 61], &[0; 6 * 61]),
    ];
    cases.push(Case::new(DryMarks { advance: 1 }, inputs, 0.0));
    // Breakers of several tokens: one at the end of the text, one further back, one that begins before the window, one whose last token is
    // missing; each in a text that repeats.
    for (sequence, before, window) in
        [(vec![5, 6], 0, u32::MAX), (vec![5, 6, 5], 30, u32::MAX), (vec![6, 5, 6, 7], 18, 20), (vec![5, 6], 1, 9)]
    {
        for cut in [0, 1] {
            let (vocabulary, capacity, length) = (40, 400, 333);
            let mut history: Vec<u32> = (0..capacity).map(|at| at as u32 % 5).collect();
            let at = length - before - sequence.len();
            history[at..at + sequence.len() - cut].copy_from_slice(&sequence[..sequence.len() - cut]);
            // 5 begins two breakers, and is a breaker if another 5 follows.
            let rests = vec![sequence[1..].to_vec(), vec![9, 9], vec![30]];
            let heads = [(sequence[0], 0), (8, 1)];
            let breakers = DryBreakerWords::words(vocabulary, &[20], &heads, &[vec![0, 1], vec![2]], &rests);
            let settings = row(Dry { window, ..slow });
            let inputs = vec![
                SamplerRow::tensor(&[settings]),
                HostTensor::u32(&[1, 4], &[length as u32 - 1, 3, 0, 0]),
                HostTensor::u32(&[1, capacity], &history),
                HostTensor::u32(&[1, DryBreakerWords::words_of(vocabulary)], &breakers.unwrap_or_default()),
                HostTensor::u32(&[1, 2 * vocabulary], &vec![0; 2 * vocabulary]),
            ];
            cases.push(Case::new(DryMarks { advance: 1 }, inputs, 0.0));
        }
    }
    cases
}
