//! The latents of the tokens that a model with multi-head latent attention has seen (`model/latent.rs`): for each layer one row a token, which
//! all heads read.

use std::ops::Range;

use super::rows::{Moved, PositionRows};
use super::{KeyRope, KvFormat, SequenceState, Shift, StateSize};
use crate::error::Result;
use crate::model::config::Config;
use crate::tensor::ops::{KvShift, cache_columns};
use crate::tensor::{Context, Tensor};

/// The latents of all layers, of one sequence or several; no layers if the model has none. Cloning clones the handle.
#[derive(Clone)]
pub struct LatentCache {
    /// Of each layer: the part that rope turned, then the latent. In q8_0 a row is padded to whole blocks.
    rows: PositionRows,
    /// Numbers of a row.
    row: usize,
}

impl LatentCache {
    /// Memory is never read before it is written.
    pub fn new(context: &Context, config: &Config, size: StateSize) -> Result<Self> {
        let all = config.layers_with_latents().map(|_| (columns(config, size.format), "latent_cache"));
        Ok(Self { rows: PositionRows::new(context, all, size)?, row: row(config) })
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        Ok(Self { rows: self.rows.sequence(index)?, ..*self })
    }

    /// The bytes of a cache, and the bytes of its largest binding.
    pub fn needs(config: &Config, size: StateSize) -> (u64, u64) {
        let layers = config.layers_with_latents().count() as u64;
        if layers == 0 {
            return (0, 0);
        }
        let binding = PositionRows::needs(columns(config, size.format), size);
        (binding.saturating_mul(layers), binding)
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.rows.bytes()
    }

    /// A layer's rows, [capacity, columns], or those of all sequences.
    pub fn layer(&self, index: usize) -> Option<&Tensor> {
        self.rows.tensors().get(index)
    }
}

/// How many numbers a row has.
fn row(config: &Config) -> usize {
    config.latent.map_or(0, |latent| latent.row())
}

/// The same with what pads it.
fn columns(config: &Config, format: KvFormat) -> usize {
    cache_columns(format.dtype(), 1, row(config))
}

impl SequenceState for LatentCache {
    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()> {
        self.rows.copy_from(context, sequence, length)
    }

    /// A row begins with its turned part, whose pairs are neighbours whatever they are in the model (`latent_append`).
    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        let layers = self.rows.tensors();
        let moves = if layers.is_empty() { vec![] } else { self.rows.moves(shift)? };
        for (index, cache) in layers.iter().enumerate() {
            let frequencies = rope(index)?.frequencies;
            let inputs: Vec<&Tensor> = [cache].into_iter().chain(&frequencies).collect();
            for &Moved { first_from, first_to, rows } in &moves {
                context.run(&KvShift { head_dim: self.row, first_from, first_to, rows, interleaved: true }, &inputs)?;
            }
        }
        Ok(())
    }

    fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>> {
        self.rows.positions(range)
    }
}
