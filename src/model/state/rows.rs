//! Tensors with a row for each position of a sequence, of one sequence or several: what caches of keys and values and of latents are made of.

use std::ops::Range;

use super::{KvFormat, Shift};
use crate::error::Result;
use crate::tensor::ops::CopySequence;
use crate::tensor::{Context, Desc, Shape, Tensor};

/// What states have room for.
#[derive(Clone, Copy, Debug)]
pub struct StateSize {
    /// Tokens of each sequence; there may be room for a few more.
    pub capacity: usize,
    /// Sequences.
    pub sequences: usize,
    /// How keys, values and latents are stored.
    pub format: KvFormat,
}

/// Cloning clones the handle.
#[derive(Clone)]
pub(super) struct PositionRows {
    /// [capacity, columns], or [sequences, capacity, columns].
    tensors: Vec<Tensor>,
    capacity: usize,
    /// For the part of one sequence: its number, and the tensors of all sequences.
    part_of: Option<(usize, Vec<Tensor>)>,
}

/// Rows that move up in a shift. Those read and those written don't overlap.
#[derive(Clone, Copy)]
pub(super) struct Moved {
    pub first_from: usize,
    pub first_to: usize,
    pub rows: usize,
}

impl PositionRows {
    /// A tensor for each of `columns`, which have its name. Memory is never read before it is written.
    pub fn new(
        context: &Context,
        columns: impl Iterator<Item = (usize, &'static str)>,
        size: StateSize,
    ) -> Result<Self> {
        let tensor = |(columns, name)| context.lasting(Self::desc(columns, size), name);
        let tensors = columns.map(tensor).collect::<Result<_>>()?;
        Ok(Self { tensors, capacity: size.format.capacity(size.capacity, size.sequences), part_of: None })
    }

    fn desc(columns: usize, StateSize { capacity, sequences, format }: StateSize) -> Desc {
        let capacity = format.capacity(capacity, sequences);
        let shape = match sequences {
            1 => Shape::from([capacity, columns]),
            _ => Shape::from([sequences, capacity, columns]),
        };
        Desc { shape, dtype: format.dtype() }
    }

    /// The bytes of a tensor.
    pub fn needs(columns: usize, size: StateSize) -> u64 {
        let desc = Self::desc(columns, size);
        let elements = desc.shape.dims().iter().fold(1u64, |elements, dim| elements.saturating_mul(*dim as u64));
        desc.dtype.bytes(elements)
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        let of_sequence = |all: &Tensor| match *all.shape().dims() {
            [_, capacity, columns] => all.part(index * capacity * columns, Shape::from([capacity, columns])),
            _ => Ok(all.clone()),
        };
        let tensors = self.tensors.iter().map(of_sequence).collect::<Result<_>>()?;
        Ok(Self { tensors, part_of: Some((index, self.tensors.clone())), ..*self })
    }

    /// In the order of their columns.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// How many positions a sequence has.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(Tensor::bytes).sum()
    }

    /// Copies the first positions of another sequence of the same memory.
    pub fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()> {
        let Some((own, tensors)) = &self.part_of else { bail!(Internal, "a cache of one sequence has no others") };
        if *own != sequence && length > 0 {
            let copy = CopySequence { from: sequence, to: *own, positions: length };
            for all in tensors {
                context.run(&copy, &[all])?;
            }
        }
        Ok(())
    }

    /// These rows of all tensors.
    pub fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>> {
        let part = |rows: &Tensor| {
            let (_, columns) = rows.shape().matrix()?;
            rows.part(range.start * columns, Shape::from([range.len(), columns]))
        };
        self.tensors.iter().map(part).collect()
    }

    /// The moves of a shift, in their order.
    pub fn moves(&self, shift: Shift) -> Result<Vec<Moved>> {
        let Shift { sinks, dropped, length } = shift;
        if dropped == 0 || length > self.capacity || sinks + dropped > length {
            bail!(Internal, "{shift:?} of {} positions", self.capacity);
        }
        let left = length - dropped;
        // At most as many rows as were dropped.
        let moved =
            |first_to: usize| Moved { first_from: first_to + dropped, first_to, rows: dropped.min(left - first_to) };
        Ok((sinks..left).step_by(dropped).map(moved).collect())
    }
}
