//! The keys and values of the tokens that a model has seen, one pair of tensors per layer.

use std::ops::Range;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::{KeyRope, SequenceState, Shift};
use crate::error::Result;
use crate::model::config::Config;
use crate::model::layer_config::LayerConfig;
use crate::tensor::ops::{CopySequence, KvShift, cache_columns};
use crate::tensor::{Context, DType, Desc, Shape, Tensor};

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
    /// Keys and values of each layer with attention, [capacity, columns], or [sequences, capacity, columns]. There are n_kv_heads · head_dim columns; in
    /// q8_0 heads are padded to whole blocks.
    layers: Vec<(Tensor, Tensor)>,
    capacity: usize,
    /// The length of a head in each of these layers.
    head_dims: Rc<[usize]>,
    dtype: DType,
    /// For the part of one sequence: its number, and the layers of all sequences.
    part_of: Option<(usize, Vec<(Tensor, Tensor)>)>,
}

impl KvCache {
    /// Room for `capacity` tokens, or a few more, in each of `sequences` sequences. Memory is never read before it is written.
    pub fn new(
        context: &Context,
        config: &Config,
        capacity: usize,
        sequences: usize,
        format: KvFormat,
    ) -> Result<Self> {
        let layers = config
            .layers_with_kv()
            .map(|layer| {
                let desc = Self::desc(layer, capacity, sequences, format);
                Ok((context.lasting(desc, "k_cache")?, context.lasting(desc, "v_cache")?))
            })
            .collect::<Result<_>>()?;
        let capacity = format.capacity(capacity, sequences);
        let head_dims = config.layers_with_kv().map(|layer| layer.head_dim).collect();
        Ok(Self { layers, capacity, head_dims, dtype: format.dtype(), part_of: None })
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        let of_sequence = |cache: &Tensor| match *cache.shape().dims() {
            [_, capacity, columns] => cache.part(index * capacity * columns, Shape::from([capacity, columns])),
            _ => Ok(cache.clone()),
        };
        let layers = self.layers.iter().map(|(k, v)| Ok((of_sequence(k)?, of_sequence(v)?))).collect::<Result<_>>()?;
        let part_of = Some((index, self.layers.clone()));
        Ok(Self { layers, part_of, head_dims: self.head_dims.clone(), ..*self })
    }

    /// The shape of a layer's keys or values.
    fn desc(layer: &LayerConfig, capacity: usize, sequences: usize, format: KvFormat) -> Desc {
        let columns = cache_columns(format.dtype(), layer.n_kv_heads, layer.head_dim);
        let capacity = format.capacity(capacity, sequences);
        let shape = match sequences {
            1 => Shape::from([capacity, columns]),
            _ => Shape::from([sequences, capacity, columns]),
        };
        Desc { shape, dtype: format.dtype() }
    }

    /// The bytes of a cache, and the bytes of its largest binding.
    pub fn needs(config: &Config, capacity: usize, sequences: usize, format: KvFormat) -> (u64, u64) {
        let bytes = |layer: &LayerConfig| {
            let desc = Self::desc(layer, capacity, sequences, format);
            let elements = desc.shape.dims().iter().fold(1u64, |elements, dim| elements.saturating_mul(*dim as u64));
            desc.dtype.bytes(elements)
        };
        let all = config.layers_with_kv().fold(0u64, |all, layer| all.saturating_add(bytes(layer).saturating_mul(2)));
        (all, config.layers_with_kv().map(bytes).max().unwrap_or(0))
    }

    /// How many positions a sequence has.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How keys and values are stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|(k, v)| k.bytes() + v.bytes()).sum()
    }

    /// Keys and values of a layer by its number among those with attention (`LayerConfig::attention`), [capacity, columns], or those of all
    /// sequences.
    pub fn layer(&self, index: usize) -> (&Tensor, &Tensor) {
        let (k, v) = &self.layers[index];
        (k, v)
    }
}

impl SequenceState for KvCache {
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
            for cache in layers.iter().flat_map(|(k, v)| [k, v]) {
                context.run(&copy, &[cache])?;
            }
        }
        Ok(())
    }

    fn copyable(&self, _: usize, length: usize) -> usize {
        length
    }

    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        let Shift { sinks, dropped, length } = shift;
        if dropped == 0 || length > self.capacity || sinks + dropped > length {
            bail!(Internal, "{shift:?} of {} positions", self.capacity);
        }
        for (index, (k_cache, v_cache)) in self.layers.iter().enumerate() {
            let KeyRope { frequencies, interleaved } = rope(index)?;
            let mut first_to = sinks;
            while first_to + dropped < length {
                // At most as many rows as were dropped, so that the rows read and the rows written don't overlap.
                let rows = dropped.min(length - dropped - first_to);
                let head_dim = self.head_dims[index];
                let op = KvShift { head_dim, first_from: first_to + dropped, first_to, rows, interleaved };
                let mut keys = vec![k_cache];
                keys.extend(&frequencies);
                context.run(&op, &keys)?;
                context.run(&op, &[v_cache])?;
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
        self.layers.iter().flat_map(|(k, v)| [k, v]).map(part).collect()
    }

    fn snapshot(&self, _: usize) -> Result<Vec<Tensor>> {
        Ok(vec![])
    }

    fn load(&self, _: &Context, _: usize, _: &[Tensor]) -> Result<()> {
        Ok(())
    }
}
