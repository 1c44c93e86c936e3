//! The keys and values of the tokens that a model has seen, one pair of tensors per layer.

use super::config::Config;
use crate::error::Result;
use crate::tensor::{Context, Desc, Tensor};

pub struct KvCache {
    /// Keys and values of each layer, [capacity, n_kv_heads · head_dim].
    layers: Vec<(Tensor, Tensor)>,
    capacity: usize,
}

impl KvCache {
    /// Room for `capacity` tokens. What stands in it is never read before it is written.
    pub fn new(context: &Context, config: &Config, capacity: usize) -> Result<Self> {
        let desc = Desc::f32(&[capacity, config.n_kv_heads * config.head_dim]);
        let layers = (0..config.n_layers)
            .map(|_| Ok((context.lasting(desc, "k_cache")?, context.lasting(desc, "v_cache")?)))
            .collect::<Result<_>>()?;
        Ok(Self { layers, capacity })
    }

    /// The bytes of a cache for so many tokens, and those of its largest binding.
    pub fn needs(config: &Config, capacity: usize) -> (u64, u64) {
        let binding = (config.n_kv_heads * config.head_dim * 4) as u64 * capacity as u64;
        (binding.saturating_mul(2 * config.n_layers as u64), binding)
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|(k, v)| k.bytes() + v.bytes()).sum()
    }

    pub(super) fn layer(&self, index: usize) -> (&Tensor, &Tensor) {
        let (k, v) = &self.layers[index];
        (k, v)
    }
}
