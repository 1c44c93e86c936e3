//! The masks of structured output on the GPU: an automaton as a table, which the engine fills, and the state that each step chose in.

use std::ops::Range;

use super::mask_table::MaskTable;
use super::ops::MaskLogits;
use super::ring::{RING, ring_ranges};
use super::target::Target;
use crate::error::Result;
use crate::tensor::{Context, Desc, Shape, Tensor};

/// The most different masks of a sequence.
pub const MASKS: usize = 256;

/// Changes for the GPU.
pub struct MaskDelta<'a> {
    /// Runs of masks, by the row of the first.
    pub masks: Vec<(usize, &'a [u32])>,
    /// Runs of words of the table, by the index of the first.
    pub table: Vec<(usize, &'a [u32])>,
}

#[derive(Clone)]
pub struct Masking {
    /// [sequences · MASKS, words] u32: a bit for each token.
    masks: Tensor,
    /// [sequences, MaskTable::WORDS] u32
    table: Tensor,
    /// [rows, RING] u32: states by step.
    states: Tensor,
}

impl Masking {
    /// For `sequences` sequences, each with its own masks and table.
    pub fn new(context: &Context, rows: usize, vocab_size: usize) -> Result<Self> {
        Ok(Self {
            masks: context.zeros(Desc::u32(&[rows * MASKS, MaskLogits::words(vocab_size)]))?,
            table: context.zeros(Desc::u32(&[rows, MaskTable::WORDS]))?,
            states: context.zeros(Desc::u32(&[rows, RING]))?,
        })
    }

    /// The same for the first of them.
    pub fn first(&self, rows: usize) -> Result<Self> {
        Ok(Self { states: self.states.part(0, Shape::from([rows, RING]))?, ..self.clone() })
    }

    /// The logits of a step, [rows, vocab_size]; tokens that its states don't allow have the lowest number.
    pub fn apply(&self, context: &Context, logits: &Tensor, target: &Target) -> Result<Tensor> {
        let Target { state, ring, .. } = target;
        context.run1(&MaskLogits, &[logits, &self.masks, &self.table, state, ring, &self.states])
    }

    /// States by step, [rows, RING].
    pub(super) fn states(&self) -> &Tensor {
        &self.states
    }

    /// Writes changes of a sequence's automaton.
    pub fn update(&self, context: &Context, sequence: usize, news: MaskDelta<'_>) -> Result<()> {
        let words = self.masks.shape().matrix()?.1;
        for (row, masks) in news.masks {
            context.write(&self.masks, (sequence * MASKS + row) * words, bytemuck::cast_slice(masks))?;
        }
        for (at, pairs) in news.table {
            context.write(&self.table, sequence * MaskTable::WORDS + at, bytemuck::cast_slice(pairs))?;
        }
        Ok(())
    }

    /// Sets the state of step `step` of a row.
    pub fn enter(&self, context: &Context, row: usize, step: usize, state: u32) -> Result<()> {
        let before = row * RING + (step + RING - 1) % RING;
        context.write(&self.states, before, bytemuck::bytes_of(&(MaskTable::ENTRY | state)))
    }

    /// The places of the states of `steps` steps of a row, from step `first` on.
    pub fn ranges(&self, row: usize, first: usize, steps: usize) -> Vec<(&Tensor, Range<usize>)> {
        let begin = row * RING;
        let ranges = ring_ranges(first, steps);
        ranges.map(|range| (&self.states, begin + range.start..begin + range.end)).collect()
    }
}
