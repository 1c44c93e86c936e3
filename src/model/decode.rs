//! The forward pass of one token in few dispatches, five a layer: what a decode step replays.
//!
//! The same computation as `Transformer::forward`, by ops that join several of its own. Models whose shapes these ops don't take
//! go through the plain ones.

use super::arch::RopeKind;
use super::config::Config;
use super::{KvCache, Weights};
use crate::error::Result;
use crate::tensor::ops::{AttentionOut, AttentionSplit, Embedding, MatVecAdd, NormGateUp, NormMatVec, NormQkv, Splits};
use crate::tensor::{Context, HostTensor, Op, Tensor, to_planar};

pub(super) struct Decode {
    layers: Vec<Layer>,
    output_norm: Tensor, // [n_embd] in planes
    splits: Splits,
}

/// The weights of one layer; matrices are [outputs, inputs].
struct Layer {
    /// The norm's weight in planes, rope's frequencies, biases.
    vectors: Tensor,
    qkv: Tensor, // [(n_heads + 2 · n_kv_heads) · head_dim, n_embd]
    bias: bool,
    attention_output: Tensor,  // [n_embd, n_heads · head_dim]
    feed_forward_norm: Tensor, // [n_embd] in planes
    gate_up: Tensor,           // [2 · n_ff, n_embd]
    down: Tensor,              // [n_embd, n_ff]
}

impl Decode {
    /// `None` where the ops don't take the model's shapes, or its matrices could not be joined.
    pub fn new(context: &Context, config: &Config, weights: &Weights, frequencies: &[f32]) -> Result<Option<Self>> {
        let whole_blocks =
            [config.n_embd, config.n_ff, config.n_heads * config.head_dim].iter().all(|n| n.is_multiple_of(32));
        if !whole_blocks || !config.head_dim.is_multiple_of(4) {
            return Ok(None);
        }
        let vector = |values: &[f32]| context.tensor(&HostTensor::f32(&[values.len()], values));
        let mut layers = Vec::with_capacity(config.n_layers);
        for layer in 0..config.n_layers {
            let name = |stem: &str| format!("blk.{layer}.{stem}");
            let joined = |stem: &str| weights.optional(&name(&format!("{stem}.weight"))).cloned();
            let (Some(qkv), Some(gate_up)) = (joined("attn_qkv"), joined("ffn_gate_up")) else { return Ok(None) };
            let mut vectors = to_planar(weights.vector(&name("attn_norm.weight"))?);
            vectors.extend_from_slice(frequencies);
            let biases = ["attn_q.bias", "attn_k.bias", "attn_v.bias"].map(&name);
            let bias = weights.optional(&biases[0]).is_some();
            if bias {
                for name in &biases {
                    vectors.extend_from_slice(weights.vector(name)?);
                }
            }
            layers.push(Layer {
                vectors: vector(&vectors)?,
                qkv,
                bias,
                attention_output: weights.get(&name("attn_output.weight"))?.clone(),
                feed_forward_norm: vector(&to_planar(weights.vector(&name("ffn_norm.weight"))?))?,
                gate_up,
                down: weights.get(&name("ffn_down.weight"))?.clone(),
            });
        }
        let capabilities = context.device().capabilities();
        Ok(Some(Self {
            layers,
            output_norm: vector(&to_planar(weights.vector("output_norm.weight")?))?,
            splits: Splits::choose(config.n_heads, config.n_kv_heads, config.head_dim, capabilities),
        }))
    }

    /// Records the pass over one token at position `state[0]`. Returns its residual stream after the last layer, [1, n_embd] in
    /// planes.
    pub fn forward(
        &self,
        context: &Context,
        config: &Config,
        token_embedding: &Tensor,
        token: &Tensor,
        state: &Tensor,
        cache: &KvCache,
    ) -> Result<Tensor> {
        let run = |op: &dyn Op, inputs: &[&Tensor]| context.run(op, inputs).map(|_| ());
        let gate_up = NormGateUp { epsilon: config.rms_eps };
        let attention = AttentionSplit {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            splits: self.splits,
        };
        let attention_out = AttentionOut {
            heads: config.n_heads,
            head_dim: config.head_dim,
            capacity: cache.capacity(),
            splits: self.splits,
        };

        let x = context.run1(&Embedding { planar: true }, &[token, token_embedding])?; // [1, n_embd] in planes, as all x
        for (index, layer) in self.layers.iter().enumerate() {
            let (k_cache, v_cache) = cache.layer(index);
            let qkv = NormQkv {
                epsilon: config.rms_eps,
                q_dim: config.n_heads * config.head_dim,
                kv_dim: config.n_kv_heads * config.head_dim,
                head_dim: config.head_dim,
                pairs: config.rope_dim / 2,
                interleaved: config.arch.rope == RopeKind::Interleaved,
                bias: layer.bias,
            };
            let q = context.run1(&qkv, &[&x, &layer.vectors, &layer.qkv, state, k_cache, v_cache])?; // [1, n_heads · head_dim]
            let splits = context.run(&attention, &[&q, k_cache, v_cache, state])?;
            let [sums, totals] = &splits[..] else { bail!(Internal, "attention_split has two outputs") };
            run(&attention_out, &[sums, totals, &layer.attention_output, state, &x])?;
            let f = context.run1(&gate_up, &[&x, &layer.feed_forward_norm, &layer.gate_up])?; // [1, n_ff] in planes
            run(&MatVecAdd, &[&f, &layer.down, &x])?;
        }
        Ok(x)
    }

    /// The logits, [1, vocab_size], of what `forward` returned.
    pub fn logits(&self, context: &Context, config: &Config, output: &Tensor, x: &Tensor) -> Result<Tensor> {
        context.run1(&NormMatVec { epsilon: config.rms_eps }, &[x, &self.output_norm, output])
    }
}
