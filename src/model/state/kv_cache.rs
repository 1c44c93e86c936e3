//! The keys and values of the tokens that a model has seen, one pair of tensors per layer.

use std::ops::Range;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::rows::{Moved, PositionRows, StateSize};
use super::{KeyRope, SequenceState, Shift};
use crate::error::Result;
use crate::model::config::Config;
use crate::model::layer_config::LayerConfig;
use crate::tensor::ops::{KvShift, cache_columns};
use crate::tensor::{Context, DType, Tensor};

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum KvFormat {
    /// Half the memory, and half of the bytes to read in long contexts.
    F16,
    /// Exact.
    F32,
    /// int8 in blocks of 32 along each head, each with an f16 scale: 0.53 of the memory of f16. Heads whose length is no multiple of 32 are
    /// padded.
    #[serde(rename = "q8_0")]
    Q8_0,
}

impl KvFormat {
    /// With several sequences, each has a multiple of this number of positions. So its part begins at a multiple of 256 bytes even for
    /// short heads, and kernels can bind it alone.
    fn aligned_positions(self) -> usize {
        match self {
            Self::F16 | Self::F32 => 64,
            // A position has at least one block, of 34 bytes.
            Self::Q8_0 => 128,
        }
    }

    /// How many positions a sequence has that is to have room for `capacity` tokens.
    pub(super) fn capacity(self, capacity: usize, sequences: usize) -> usize {
        if sequences == 1 { capacity } else { capacity.next_multiple_of(self.aligned_positions()) }
    }

    pub(super) fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::F32 => DType::F32,
            Self::Q8_0 => DType::Q8_0,
        }
    }
}

/// The keys and values of all layers, of one sequence or several. Cloning clones the handle.
#[derive(Clone)]
pub struct KvCache {
    /// The keys, then the values of each layer with attention. There are n_kv_heads · head_dim columns; in q8_0 heads are padded to whole blocks.
    rows: PositionRows,
    /// The length of a head in each of these layers.
    head_dims: Rc<[usize]>,
    dtype: DType,
}

impl KvCache {
    /// Memory is never read before it is written.
    pub fn new(context: &Context, config: &Config, size: StateSize) -> Result<Self> {
        let columns = |layer| columns(layer, size.format);
        let of_layer = |layer| [(columns(layer), "k_cache"), (columns(layer), "v_cache")];
        let rows = PositionRows::new(context, config.layers_with_kv().flat_map(of_layer), size)?;
        let head_dims = config.layers_with_kv().map(|layer| layer.head_dim).collect();
        Ok(Self { rows, head_dims, dtype: size.format.dtype() })
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        Ok(Self { rows: self.rows.sequence(index)?, head_dims: self.head_dims.clone(), dtype: self.dtype })
    }

    /// The bytes of a cache, and the bytes of its largest binding.
    pub fn needs(config: &Config, size: StateSize) -> (u64, u64) {
        let bytes = |layer: &LayerConfig| PositionRows::needs(columns(layer, size.format), size);
        let all = config.layers_with_kv().fold(0u64, |all, layer| all.saturating_add(bytes(layer).saturating_mul(2)));
        (all, config.layers_with_kv().map(bytes).max().unwrap_or(0))
    }

    /// How many positions a sequence has.
    pub fn capacity(&self) -> usize {
        self.rows.capacity()
    }

    /// How keys and values are stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.rows.bytes()
    }

    /// Keys and values of a layer by its number among those with attention (`LayerConfig::attention`), [capacity, columns], or those of all
    /// sequences.
    pub fn layer(&self, index: usize) -> (&Tensor, &Tensor) {
        let tensors = self.rows.tensors();
        (&tensors[2 * index], &tensors[2 * index + 1])
    }
}

/// Of a layer's keys, and of its values.
fn columns(layer: &LayerConfig, format: KvFormat) -> usize {
    cache_columns(format.dtype(), layer.n_kv_heads, layer.head_dim)
}

impl SequenceState for KvCache {
    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()> {
        self.rows.copy_from(context, sequence, length)
    }

    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        let moves = self.rows.moves(shift)?;
        for (index, &head_dim) in self.head_dims.iter().enumerate() {
            let (k_cache, v_cache) = self.layer(index);
            let KeyRope { frequencies, interleaved } = rope(index)?;
            let keys: Vec<&Tensor> = [k_cache].into_iter().chain(&frequencies).collect();
            for &Moved { first_from, first_to, rows } in &moves {
                let op = KvShift { head_dim, first_from, first_to, rows, interleaved };
                context.run(&op, &keys)?;
                context.run(&op, &[v_cache])?;
            }
        }
        Ok(())
    }

    fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>> {
        self.rows.positions(range)
    }
}
