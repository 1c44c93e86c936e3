//! The layers of a model run one op at a time: for models with what the joined ops don't compute, or whose matrices can't be joined,
//! and as the reference that `decode.rs` and `prefill.rs` are held to.
//!
//! A layer does what it has tensors for.

use super::arch::{Norm, RopeKind};
use super::config::Config;
use super::matrix::Matrix;
use super::mixture::{Combined, Mixture};
use super::{KvCache, Transformer, Weights};
use crate::error::Result;
use crate::tensor::ops::{
    self, Add, AddRow, Attention, CombineExperts, KvAppend, LayerNorm, RmsNorm, Rope, Scale, SliceColumns, Swiglu,
    SwigluFused, Unary, UnaryKind,
};
use crate::tensor::{Context, Op, Shape, Tensor};

pub(super) struct Plain {
    layers: Vec<Layer>,
}

/// The weights of one layer. q_dim is n_heads · head_dim, and kv_dim n_kv_heads · head_dim.
struct Layer {
    attention_norm: Option<NormWeights>,
    queries_keys_values: QueriesKeysValues,
    q_norm: Option<NormWeights>,
    k_norm: Option<NormWeights>,
    attention_output: Linear, // [n_embd, q_dim]
    post_attention_norm: Option<NormWeights>,
    feed_forward_norm: Option<NormWeights>,
    feed_forward: FeedForward,
    post_feed_forward_norm: Option<NormWeights>,
}

enum QueriesKeysValues {
    /// [q_dim + 2 · kv_dim, n_embd]
    One(Linear),
    /// [q_dim, n_embd], [kv_dim, n_embd], [kv_dim, n_embd]
    Three(Box<[Linear; 3]>),
}

enum FeedForward {
    /// Gate and up [n_ff, n_embd], down [n_embd, n_ff].
    Gated { gate: Linear, up: Linear, down: Linear },
    /// Gate and up in one, [2 · n_ff, n_embd].
    GatedInOne { gate_up: Linear, down: Linear },
    /// [n_ff, n_embd], [n_embd, n_ff]
    Ungated { up: Linear, down: Linear },
    /// The router is [experts, n_embd].
    Experts { router: Linear, experts: Mixture },
}

/// A matrix [outputs, inputs], and a bias [outputs].
pub(super) struct Linear {
    weight: Matrix,
    bias: Option<Tensor>,
}

impl Linear {
    /// Of the stem's `.weight` and, if there is one, its `.bias`.
    pub fn of(weights: &Weights, stem: &str) -> Result<Self> {
        let weight = weights.matrix(&format!("{stem}.weight"))?;
        Ok(Self { weight, bias: weights.optional(&format!("{stem}.bias")).cloned() })
    }

    /// [n, inputs] → [n, outputs]
    pub fn run(&self, context: &Context, x: &Tensor) -> Result<Tensor> {
        self.run_by(ops::linear(x.shape().matrix()?.0), context, x)
    }

    /// The same by one of the products.
    pub fn run_by(&self, op: &dyn Op, context: &Context, x: &Tensor) -> Result<Tensor> {
        let y = self.weight.multiply(context, op, &[x])?;
        if let Some(bias) = &self.bias {
            context.run(&AddRow, &[&y, bias])?;
        }
        Ok(y)
    }
}

/// What a norm multiplies with, and adds.
pub(super) struct NormWeights {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

impl NormWeights {
    /// Of the stem's `.weight` and `.bias`, if the model has it.
    pub fn optional(weights: &Weights, stem: &str) -> Option<Self> {
        let weight = weights.optional(&format!("{stem}.weight"))?.clone();
        Some(Self { weight, bias: weights.optional(&format!("{stem}.bias")).cloned() })
    }

    /// [rows, columns] → the same
    pub fn run(&self, context: &Context, config: &Config, x: &Tensor) -> Result<Tensor> {
        let epsilon = config.norm_eps;
        match (config.arch.norm, &self.bias) {
            (Norm::Rms, None) => context.run1(&RmsNorm { epsilon }, &[x, &self.weight]),
            (Norm::Rms, Some(_)) => bail!(UnsupportedArchitecture, "an RMS norm with a bias is not supported"),
            (Norm::Layer, None) => context.run1(&LayerNorm { epsilon, bias: false }, &[x, &self.weight]),
            (Norm::Layer, Some(bias)) => context.run1(&LayerNorm { epsilon, bias: true }, &[x, &self.weight, bias]),
        }
    }
}

impl Plain {
    pub fn new(config: &Config, weights: &Weights) -> Result<Self> {
        Ok(Self {
            layers: (0..config.n_layers).map(|layer| Layer::new(config, weights, layer)).collect::<Result<_>>()?,
        })
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
        let x = transformer.embed(tokens, state)?; // [n, n_embd]
        for (index, layer) in self.layers.iter().enumerate() {
            let pass = Pass { context, config, transformer, cache, state, index };
            let h = layer.normed(&pass, &layer.attention_norm, &x)?; // [n, n_embd]
            let o = layer.attention(&pass, &h)?; // [n, n_embd]
            layer.add(&pass, &x, o, &layer.post_attention_norm)?;
            // Side by side, both start from the same normed input.
            let is_parallel = layer.feed_forward_norm.is_none() && config.arch.parallel_without_norm;
            let h = if is_parallel { h } else { layer.normed(&pass, &layer.feed_forward_norm, &x)? }; // [n, n_embd]
            let down = layer.feed_forward(&pass, &h)?; // [n, n_embd]
            layer.add(&pass, &x, down, &layer.post_feed_forward_norm)?;
        }
        Ok(x)
    }
}

/// What the steps of one layer share.
struct Pass<'a> {
    context: &'a Context,
    config: &'a Config,
    transformer: &'a Transformer,
    cache: &'a KvCache,
    state: &'a Tensor,
    index: usize,
}

impl Layer {
    fn new(config: &Config, weights: &Weights, layer: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        let norm = |stem: &str| NormWeights::optional(weights, &name(stem));
        let has = |stem: &str| weights.optional_matrix(&name(&format!("{stem}.weight"))).is_some();
        Ok(Self {
            attention_norm: norm("attn_norm"),
            queries_keys_values: match has("attn_qkv") {
                true => QueriesKeysValues::One(linear("attn_qkv")?),
                false => QueriesKeysValues::Three(Box::new([linear("attn_q")?, linear("attn_k")?, linear("attn_v")?])),
            },
            q_norm: norm("attn_q_norm"),
            k_norm: norm("attn_k_norm"),
            attention_output: linear("attn_output")?,
            post_attention_norm: norm("post_attention_norm"),
            feed_forward_norm: norm("ffn_norm"),
            feed_forward: if config.experts.is_some() {
                FeedForward::Experts { router: linear("ffn_gate_inp")?, experts: Mixture::of(weights, layer)? }
            } else if has("ffn_gate") {
                FeedForward::Gated { gate: linear("ffn_gate")?, up: linear("ffn_up")?, down: linear("ffn_down")? }
            } else if linear("ffn_up")?.weight.rows() == 2 * config.n_ff {
                FeedForward::GatedInOne { gate_up: linear("ffn_up")?, down: linear("ffn_down")? }
            } else {
                FeedForward::Ungated { up: linear("ffn_up")?, down: linear("ffn_down")? }
            },
            post_feed_forward_norm: norm("post_ffw_norm"),
        })
    }

    /// The residual stream as a part of the layer takes it: normed, where the layer has a norm there.
    fn normed(&self, pass: &Pass, norm: &Option<NormWeights>, x: &Tensor) -> Result<Tensor> {
        match norm {
            Some(norm) => norm.run(pass.context, pass.config, x),
            None => Ok(x.clone()),
        }
    }

    /// x += y, after its norm and scale.
    fn add(&self, pass: &Pass, x: &Tensor, mut y: Tensor, norm: &Option<NormWeights>) -> Result<()> {
        if let Some(norm) = norm {
            y = norm.run(pass.context, pass.config, &y)?;
        }
        if pass.config.residual_scale != 1.0 {
            y = pass.context.run1(&Scale { factor: pass.config.residual_scale }, &[&y])?;
        }
        pass.context.run(&Add, &[x, &y]).map(|_| ())
    }

    /// [n, n_embd] → [n, n_embd]
    fn attention(&self, pass: &Pass, h: &Tensor) -> Result<Tensor> {
        let Pass { context, config, state, .. } = *pass;
        let [q, k, v] = self.project(pass, h)?;
        let q = self.norm_heads(pass, q, &self.q_norm)?;
        let k = self.norm_heads(pass, k, &self.k_norm)?;
        let layer = config.layers[pass.index];
        if let Some(rope) = layer.rope {
            let table = pass.transformer.rope(rope)?;
            let interleaved = config.ropes[rope].kind == RopeKind::Interleaved;
            let op = Rope { head_dim: config.head_dim, interleaved, scale: table.scale };
            context.run(&op, &[&q, &table.frequencies, state])?;
            context.run(&op, &[&k, &table.frequencies, state])?;
        }
        let (k_cache, v_cache) = pass.cache.layer(pass.index);
        context.run(&KvAppend { head_dim: config.head_dim }, &[&k, &v, k_cache, v_cache, state])?;
        let attention = Attention {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: config.attention_scale,
            window: layer.window,
            softcap: config.attention_softcap,
        };
        let a = context.run1(&attention, &[&q, k_cache, v_cache, state])?; // [n, q_dim]
        self.attention_output.run(context, &a)
    }

    /// Queries [n, q_dim], keys and values [n, kv_dim].
    fn project(&self, pass: &Pass, h: &Tensor) -> Result<[Tensor; 3]> {
        let Pass { context, config, .. } = *pass;
        match &self.queries_keys_values {
            QueriesKeysValues::Three(three) => {
                let [q, k, v] = &**three;
                Ok([q.run(context, h)?, k.run(context, h)?, v.run(context, h)?])
            }
            QueriesKeysValues::One(qkv) => {
                let qkv = qkv.run(context, h)?; // [n, q_dim + 2 · kv_dim]
                let (q_dim, kv_dim) = (config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim);
                let slice = |first, count| context.run1(&SliceColumns { first, count }, &[&qkv]);
                Ok([slice(0, q_dim)?, slice(q_dim, kv_dim)?, slice(q_dim + kv_dim, kv_dim)?])
            }
        }
    }

    /// Queries or keys [n, heads · head_dim], normed head by head or over all heads.
    fn norm_heads(&self, pass: &Pass, x: Tensor, norm: &Option<NormWeights>) -> Result<Tensor> {
        let Some(norm) = norm else { return Ok(x) };
        if pass.config.arch.norms_heads_together {
            return norm.run(pass.context, pass.config, &x);
        }
        let shape = x.shape();
        let head_dim = pass.config.head_dim;
        let heads = x.reshaped(Shape::from([shape.elements() / head_dim, head_dim]))?;
        norm.run(pass.context, pass.config, &heads)?.reshaped(shape)
    }

    /// [n, n_embd] → [n, n_embd]
    fn feed_forward(&self, pass: &Pass, h: &Tensor) -> Result<Tensor> {
        let Pass { context, config, .. } = *pass;
        let activation = config.arch.activation;
        match &self.feed_forward {
            FeedForward::Gated { gate, up, down } => {
                let (gate, up) = (gate.run(context, h)?, up.run(context, h)?); // [n, n_ff]
                down.run(context, &context.run1(&Swiglu { activation }, &[&gate, &up])?)
            }
            FeedForward::GatedInOne { gate_up, down } => {
                let gate_up = gate_up.run(context, h)?; // [n, 2 · n_ff]
                down.run(context, &context.run1(&SwigluFused { activation }, &[&gate_up])?)
            }
            FeedForward::Ungated { up, down } => {
                let up = up.run(context, h)?; // [n, n_ff]
                let kind = UnaryKind::from(activation);
                down.run(context, &context.run1(&Unary { kind }, &[&up])?)
            }
            FeedForward::Experts { router, experts } => {
                let logits = router.run(context, h)?; // [n, experts]
                let Combined { outputs, weights } = experts.run(context, config, h, &logits, false)?;
                context.run1(&CombineExperts::default(), &[&outputs, &weights])
            }
        }
    }
}
