//! The weights of a layer's cross-attention: the attention of a decoder to the output of its encoder. The op sets run it.

use super::Weights;
use super::config::Config;
use super::linear::Linear;
use crate::error::Result;

/// Matrices are [outputs, inputs].
pub(super) struct CrossAttention {
    /// Which keys and values it has, among those that the layers keep of the encoder's output.
    pub state: usize,
    /// The length of a head.
    pub head_dim: usize,
    pub query: Linear, // [n_heads · head_dim, n_embd]
    /// Of the encoder's output, as is `value`.
    pub key: Linear, // [n_kv_heads · head_dim, n_embd of the encoder]
    pub value: Linear, // the same
    pub output: Linear, // [n_embd, n_heads · head_dim]
}

impl CrossAttention {
    /// That of a layer, if it has any.
    pub fn of(config: &Config, weights: &Weights, index: usize) -> Result<Option<Self>> {
        let linear = |part: &str| Linear::of(weights, &format!("blk.{index}.cross_attn_{part}"));
        let of_layer = config.layers[index];
        let (Some(state), Some(_)) = (of_layer.attention, &config.encoder) else { return Ok(None) };
        Ok(Some(Self {
            state,
            head_dim: of_layer.head_dim,
            query: linear("q")?,
            key: linear("k")?,
            value: linear("v")?,
            output: linear("output")?,
        }))
    }
}
