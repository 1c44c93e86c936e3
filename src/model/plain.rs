//! The layers of a model run one op at a time: for models whose matrices can't be joined, and as the reference that `decode.rs` and
//! `prefill.rs` are held to.

use super::arch::RopeKind;
use super::config::Config;
use super::{KvCache, Transformer, Weights};
use crate::error::Result;
use crate::tensor::ops::{self, Add, AddRow, Attention, Embedding, KvAppend, RmsNorm, Rope, Swiglu};
use crate::tensor::{Op, Tensor};

pub(super) struct Plain {
    layers: Vec<Layer>,
}

/// The weights of one layer; matrices are [outputs, inputs].
struct Layer {
    attention_norm: Tensor,    // [n_embd]
    q: Tensor,                 // [n_heads · head_dim, n_embd]
    k: Tensor,                 // [n_kv_heads · head_dim, n_embd]
    v: Tensor,                 // [n_kv_heads · head_dim, n_embd]
    q_bias: Option<Tensor>,    // [n_heads · head_dim]
    k_bias: Option<Tensor>,    // [n_kv_heads · head_dim]
    v_bias: Option<Tensor>,    // [n_kv_heads · head_dim]
    attention_output: Tensor,  // [n_embd, n_heads · head_dim]
    feed_forward_norm: Tensor, // [n_embd]
    gate: Tensor,              // [n_ff, n_embd]
    up: Tensor,                // [n_ff, n_embd]
    down: Tensor,              // [n_embd, n_ff]
}

impl Plain {
    pub fn new(config: &Config, weights: &Weights) -> Result<Self> {
        let layers = (0..config.n_layers)
            .map(|layer| {
                let get =
                    |name: &str| Ok::<_, crate::Error>(weights.get(&format!("blk.{layer}.{name}.weight"))?.clone());
                let bias = |name: &str| weights.optional(&format!("blk.{layer}.{name}.bias")).cloned();
                Ok(Layer {
                    attention_norm: get("attn_norm")?,
                    q: get("attn_q")?,
                    k: get("attn_k")?,
                    v: get("attn_v")?,
                    q_bias: bias("attn_q"),
                    k_bias: bias("attn_k"),
                    v_bias: bias("attn_v"),
                    attention_output: get("attn_output")?,
                    feed_forward_norm: get("ffn_norm")?,
                    gate: get("ffn_gate")?,
                    up: get("ffn_up")?,
                    down: get("ffn_down")?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { layers })
    }

    /// Records the pass over `tokens` [n], the first at position `state[0]`. Returns their residual stream after the last layer,
    /// [n, n_embd].
    pub fn forward(
        &self,
        transformer: &Transformer,
        tokens: &Tensor,
        state: &Tensor,
        cache: &KvCache,
    ) -> Result<Tensor> {
        let (context, config) = (transformer.context(), transformer.config());
        let run1 = |op: &dyn Op, inputs: &[&Tensor]| context.run1(op, inputs);
        let run = |op: &dyn Op, inputs: &[&Tensor]| context.run(op, inputs).map(|_| ());
        let norm = RmsNorm { epsilon: config.rms_eps };
        let rope = Rope { head_dim: config.head_dim, interleaved: config.rope == RopeKind::Interleaved };
        let attention = Attention {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: config.attention_scale(),
        };
        let linear = ops::linear(tokens.shape().elements());

        let x = run1(&Embedding { planar: false }, &[tokens, transformer.token_embedding()])?; // [n, n_embd]
        for (index, layer) in self.layers.iter().enumerate() {
            let (k_cache, v_cache) = cache.layer(index);

            let h = run1(&norm, &[&x, &layer.attention_norm])?; // [n, n_embd]
            let q = run1(linear, &[&h, &layer.q])?; // [n, n_heads · head_dim]
            let k = run1(linear, &[&h, &layer.k])?; // [n, n_kv_heads · head_dim]
            let v = run1(linear, &[&h, &layer.v])?; // [n, n_kv_heads · head_dim]
            for (x, bias) in [(&q, &layer.q_bias), (&k, &layer.k_bias), (&v, &layer.v_bias)] {
                if let Some(bias) = bias {
                    run(&AddRow, &[x, bias])?;
                }
            }
            run(&rope, &[&q, transformer.frequencies(), state])?;
            run(&rope, &[&k, transformer.frequencies(), state])?;
            run(&KvAppend, &[&k, &v, k_cache, v_cache, state])?;
            let a = run1(&attention, &[&q, k_cache, v_cache, state])?; // [n, n_heads · head_dim]
            let o = run1(linear, &[&a, &layer.attention_output])?; // [n, n_embd]
            run(&Add, &[&x, &o])?;

            let h = run1(&norm, &[&x, &layer.feed_forward_norm])?; // [n, n_embd]
            let gate = run1(linear, &[&h, &layer.gate])?; // [n, n_ff]
            let up = run1(linear, &[&h, &layer.up])?; // [n, n_ff]
            let f = run1(&Swiglu, &[&gate, &up])?; // [n, n_ff]
            let down = run1(linear, &[&f, &layer.down])?; // [n, n_embd]
            run(&Add, &[&x, &down])?;
        }
        Ok(x)
    }
}
