//! The keys and values of the tokens that a model has seen, one pair of tensors per layer.

use super::config::Config;
use crate::error::Result;
use crate::tensor::{Context, Desc, Shape, Tensor};

/// With several sequences, the positions of each are a multiple of it, so that kernels can bind the part of one.
const ALIGNED_POSITIONS: usize = 64;

pub struct KvCache {
    /// Keys and values of each layer, [capacity, n_kv_heads · head_dim], or [sequences, capacity, n_kv_heads · head_dim].
    layers: Vec<(Tensor, Tensor)>,
    capacity: usize,
}

impl KvCache {
    /// Room for `capacity` tokens, or a little more, of each of some sequences. What stands in it is never read before it is
    /// written.
    pub fn new(context: &Context, config: &Config, capacity: usize, sequences: usize) -> Result<Self> {
        let (desc, capacity) = Self::desc(config, capacity, sequences);
        let layers = (0..config.n_layers)
            .map(|_| Ok((context.lasting(desc, "k_cache")?, context.lasting(desc, "v_cache")?)))
            .collect::<Result<_>>()?;
        Ok(Self { layers, capacity })
    }

    /// The part of one sequence: the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        let of_sequence = |cache: &Tensor| match *cache.shape().dims() {
            [_, capacity, columns] => cache.part(index * capacity * columns, Shape::from([capacity, columns])),
            _ => Ok(cache.clone()),
        };
        let layers = self.layers.iter().map(|(k, v)| Ok((of_sequence(k)?, of_sequence(v)?))).collect::<Result<_>>()?;
        Ok(Self { layers, capacity: self.capacity })
    }

    /// Of the keys or the values of a layer, and how many tokens there is room for.
    fn desc(config: &Config, capacity: usize, sequences: usize) -> (Desc, usize) {
        let columns = config.n_kv_heads * config.head_dim;
        match sequences {
            1 => (Desc::f32(&[capacity, columns]), capacity),
            _ => {
                let capacity = capacity.next_multiple_of(ALIGNED_POSITIONS);
                (Desc::f32(&[sequences, capacity, columns]), capacity)
            }
        }
    }

    /// The bytes of a cache, and those of its largest binding.
    pub fn needs(config: &Config, capacity: usize, sequences: usize) -> (u64, u64) {
        let (desc, _) = Self::desc(config, capacity, sequences);
        let binding = desc.shape.dims().iter().fold(4u64, |bytes, dim| bytes.saturating_mul(*dim as u64));
        (binding.saturating_mul(2 * config.n_layers as u64), binding)
    }

    /// Positions of a sequence.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|(k, v)| k.bytes() + v.bytes()).sum()
    }

    /// Keys and values of a layer, [capacity, n_kv_heads · head_dim], or of all sequences.
    pub fn layer(&self, index: usize) -> (&Tensor, &Tensor) {
        let (k, v) = &self.layers[index];
        (k, v)
    }
}
