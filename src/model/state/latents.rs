//! The latents of the tokens that a model with multi-head latent attention has seen (`model/latent.rs`): for each layer one row a token, which
//! all heads read.

use std::ops::Range;

use super::{KeyRope, KvFormat, SequenceState, Shift};
use crate::error::Result;
use crate::model::config::Config;
use crate::tensor::ops::{CopySequence, KvShift, cache_columns};
use crate::tensor::{Context, Desc, Shape, Tensor};

/// The latents of all layers, of one sequence or several; no layers if the model has none. Cloning clones the handle.
#[derive(Clone)]
pub struct LatentCache {
    /// Each layer's rows, [capacity, columns], or [sequences, capacity, columns]: the part that rope turned, then the latent. In q8_0 a row is
    /// padded to whole blocks.
    layers: Vec<Tensor>,
    capacity: usize,
    /// Numbers of a row.
    row: usize,
    /// For the part of one sequence: its number, and the layers of all sequences.
    part_of: Option<(usize, Vec<Tensor>)>,
}

impl LatentCache {
    /// Room for `capacity` tokens, or a few more, in each of `sequences` sequences. Memory is never read before it is written.
    pub fn new(
        context: &Context,
        config: &Config,
        capacity: usize,
        sequences: usize,
        format: KvFormat,
    ) -> Result<Self> {
        let Some(desc) = Self::desc(config, capacity, sequences, format) else {
            return Ok(Self { layers: vec![], capacity, row: 0, part_of: None });
        };
        let layers =
            config.layers_with_latents().map(|_| context.lasting(desc, "latent_cache")).collect::<Result<_>>()?;
        let capacity = format.capacity(capacity, sequences);
        Ok(Self { layers, capacity, row: Self::row(config), part_of: None })
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        let of_sequence = |cache: &Tensor| match *cache.shape().dims() {
            [_, capacity, columns] => cache.part(index * capacity * columns, Shape::from([capacity, columns])),
            _ => Ok(cache.clone()),
        };
        let layers = self.layers.iter().map(of_sequence).collect::<Result<_>>()?;
        Ok(Self { layers, part_of: Some((index, self.layers.clone())), ..*self })
    }

    fn row(config: &Config) -> usize {
        config.latent.map_or(0, |latent| latent.row())
    }

    /// The shape of a layer's rows, if the model has latents.
    fn desc(config: &Config, capacity: usize, sequences: usize, format: KvFormat) -> Option<Desc> {
        config.latent?;
        let columns = cache_columns(format.dtype(), 1, Self::row(config));
        let capacity = format.capacity(capacity, sequences);
        let shape = match sequences {
            1 => Shape::from([capacity, columns]),
            _ => Shape::from([sequences, capacity, columns]),
        };
        Some(Desc { shape, dtype: format.dtype() })
    }

    /// The bytes of a cache, and the bytes of its largest binding.
    pub fn needs(config: &Config, capacity: usize, sequences: usize, format: KvFormat) -> (u64, u64) {
        let Some(desc) = Self::desc(config, capacity, sequences, format) else { return (0, 0) };
        let elements = desc.shape.dims().iter().fold(1u64, |elements, dim| elements.saturating_mul(*dim as u64));
        let binding = desc.dtype.bytes(elements);
        (binding.saturating_mul(config.layers_with_latents().count() as u64), binding)
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(Tensor::bytes).sum()
    }

    /// A layer's rows, [capacity, columns], or those of all sequences.
    pub fn layer(&self, index: usize) -> Option<&Tensor> {
        self.layers.get(index)
    }
}

impl SequenceState for LatentCache {
    fn recoverable(&self, length: usize) -> usize {
        length
    }

    fn checkpoints(&self) -> Option<Vec<usize>> {
        None
    }

    fn checkpoint(&self, _: &Context, _: usize) -> Result<()> {
        Ok(())
    }

    /// Positions after the end are overwritten before they are read.
    fn roll_back(&self, _: &Context, _: usize) -> Result<()> {
        Ok(())
    }

    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()> {
        let Some((own, layers)) = &self.part_of else { bail!(Internal, "a cache of one sequence has no others") };
        if *own != sequence && length > 0 {
            let copy = CopySequence { from: sequence, to: *own, positions: length };
            for cache in layers {
                context.run(&copy, &[cache])?;
            }
        }
        Ok(())
    }

    fn copyable(&self, _: usize, length: usize) -> usize {
        length
    }

    /// A row begins with its turned part, whose pairs are neighbours whatever they are in the model (`latent_append`).
    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        let Shift { sinks, dropped, length } = shift;
        if !self.layers.is_empty() && (dropped == 0 || length > self.capacity || sinks + dropped > length) {
            bail!(Internal, "{shift:?} of {} positions", self.capacity);
        }
        for (index, cache) in self.layers.iter().enumerate() {
            let frequencies = rope(index)?.frequencies;
            let inputs: Vec<&Tensor> = [cache].into_iter().chain(&frequencies).collect();
            let mut first_to = sinks;
            while first_to + dropped < length {
                // At most as many rows as were dropped, so that the rows read and the rows written don't overlap.
                let rows = dropped.min(length - dropped - first_to);
                let first_from = first_to + dropped;
                context.run(&KvShift { head_dim: self.row, first_from, first_to, rows, interleaved: true }, &inputs)?;
                first_to += rows;
            }
        }
        Ok(())
    }

    fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>> {
        let part = |cache: &Tensor| {
            let (_, columns) = cache.shape().matrix()?;
            cache.part(range.start * columns, Shape::from([range.len(), columns]))
        };
        self.layers.iter().map(part).collect()
    }

    fn snapshot(&self, _: usize) -> Result<Vec<Tensor>> {
        Ok(vec![])
    }

    fn load(&self, _: &Context, _: usize, _: &[Tensor]) -> Result<()> {
        Ok(())
    }
}
