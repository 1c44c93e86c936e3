//! The layers of a model whose matrices could be joined: what `decode.rs` and `prefill.rs` run on.

use super::arch::{Norm, RopeKind};
use super::config::Config;
use super::matrix::Matrix;
use super::mixture::Mixture;
use super::rope::RopeTable;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::{AttentionSplit, QkvParts, Splits};
use crate::tensor::{Context, HostTensor, Tensor, to_planar};

pub(super) struct Joined {
    pub layers: Vec<Layer>,
    pub output_norm_planar: Tensor, // [n_embd] in planes
}

/// The weights of one layer; matrices are [outputs, inputs].
pub(super) struct Layer {
    pub attention_norm: Tensor,        // [n_embd]
    pub attention_norm_planar: Tensor, // [n_embd] in planes
    /// The same in planes, then rope's frequencies, then the biases: what one token's kernel reads.
    pub vectors: Tensor,
    pub qkv: Vec<(QkvParts, Matrix)>, // together [(n_heads + 2 · n_kv_heads) · head_dim, n_embd]
    pub bias: Option<Tensor>,         // [(n_heads + 2 · n_kv_heads) · head_dim]
    /// Of each head of queries, then of keys, [2 · head_dim].
    pub head_norms: Option<Tensor>,
    pub rope: LayerRope,
    /// A token sees so many positions; `None`: all.
    pub window: Option<usize>,
    pub attention_output: Matrix, // [n_embd, n_heads · head_dim]
    pub post_attention_norm: Option<PostNorm>,
    pub feed_forward_norm: Tensor,        // [n_embd]
    pub feed_forward_norm_planar: Tensor, // [n_embd] in planes
    pub feed_forward: FeedForward,
    pub post_feed_forward_norm: Option<PostNorm>,
}

/// The norm of what attention or feed-forward gave.
pub(super) struct PostNorm {
    pub weight: Tensor, // [n_embd]
    pub planar: Tensor, // [n_embd] in planes
}

/// How rope turns the heads of a layer. In a layer without rope the frequencies are zero, which turns nothing.
pub(super) struct LayerRope {
    pub frequencies: Tensor, // [pairs]
    pub pairs: usize,
    pub interleaved: bool,
    /// What sine and cosine are multiplied with.
    pub scale: f32,
}

pub(super) enum FeedForward {
    /// Down is [n_embd, n_ff].
    Gated { gate_up: GateUp, down: Matrix },
    /// The router is [experts, n_embd].
    Experts { router: Matrix, experts: Mixture },
}

/// [2 · n_ff, n_embd], or where the types differ twice [n_ff, n_embd].
pub(super) enum GateUp {
    Joined(Matrix),
    Apart(Matrix, Matrix),
}

impl GateUp {
    fn new(runs: &[Run]) -> Result<Self> {
        match runs {
            [both] => Ok(Self::Joined(both.matrix.clone())),
            [gate, up] => Ok(Self::Apart(gate.matrix.clone(), up.matrix.clone())),
            _ => bail!(Internal, "gate and up in {} matrices", runs.len()),
        }
    }
}

impl Joined {
    /// Whether the joined ops compute what a model of this configuration is; `has` tells which tensors it has.
    pub fn takes(config: &Config, has: &dyn Fn(&str) -> bool) -> bool {
        let has_one = |stem: &str| has(&format!("blk.0.{stem}"));
        let has_all = ["attn_norm.weight", "ffn_norm.weight"].iter().all(|tensor| has_one(tensor));
        let is_gated = config.experts.is_some() || !config.arch.has_ungated_feed_forward();
        let biases = ["attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"];
        let has_more = biases.iter().any(|tensor| has_one(tensor)) || has("position_embd.weight");
        // Biases would have to be added before the norm.
        let head_norms = has_one("attn_q_norm.weight");
        let norms_fit = !head_norms || !(config.arch.norms_heads_together || has_one("attn_q.bias"));
        let is_post_normed = has_one("post_attention_norm.weight");
        let scale_fits = config.residual_scale == 1.0 || !(is_post_normed || config.experts.is_some());
        let experts_fit = config.experts.is_none() || !is_post_normed;
        config.arch.norm == Norm::Rms
            && config.arch.rope.is_some()
            && has_all
            && is_gated
            && !has_more
            && norms_fit
            && scale_fits
            && experts_fit
    }

    pub fn new(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable]) -> Result<Self> {
        let layers = (0..config.n_layers).map(|layer| Layer::new(context, config, weights, ropes, layer));
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            output_norm_planar: vector(context, &to_planar(weights.vector("output_norm.weight")?))?,
        })
    }
}

impl Layer {
    fn new(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable], layer: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let get = |stem: &str| weights.matrix(&name(stem));
        let numbers = |stem: &str| weights.vector(&name(stem));
        let mut biases = Vec::new();
        for stem in ["attn_qkv.bias", "attn_q.bias", "attn_k.bias", "attn_v.bias"] {
            if weights.optional(&name(stem)).is_some() {
                biases.extend_from_slice(numbers(stem)?);
            }
        }
        let (frequencies, scale) = match config.layers[layer].rope {
            Some(rope) => (ropes[rope].frequencies.clone(), ropes[rope].scale),
            None => (vec![0.0; config.head_dim / 2], 1.0),
        };
        let attention_norm = to_planar(numbers("attn_norm.weight")?);
        let mut vectors = [&attention_norm[..], &frequencies, &biases].concat();
        vectors.resize(vectors.len().next_multiple_of(4), 0.0);
        let head_norms = match weights.optional(&name("attn_q_norm.weight")) {
            None => None,
            Some(_) => {
                Some(vector(context, &[numbers("attn_q_norm.weight")?, numbers("attn_k_norm.weight")?].concat())?)
            }
        };
        let post_norm = |stem: &str| match weights.optional(&name(stem)) {
            None => Ok::<_, crate::Error>(None),
            Some(weight) => {
                Ok(Some(PostNorm { weight: weight.clone(), planar: vector(context, &to_planar(numbers(stem)?))? }))
            }
        };
        Ok(Self {
            attention_norm: vector(context, numbers("attn_norm.weight")?)?,
            attention_norm_planar: vector(context, &attention_norm)?,
            vectors: vector(context, &vectors)?,
            qkv: weights
                .joined(&name("attn_qkv"))?
                .iter()
                .map(|run| (QkvParts::of(run.first, run.count), run.matrix.clone()))
                .collect(),
            bias: if biases.is_empty() { None } else { Some(vector(context, &biases)?) },
            head_norms,
            rope: LayerRope {
                frequencies: vector(context, &frequencies)?,
                pairs: frequencies.len(),
                interleaved: config.ropes.first().is_some_and(|rope| rope.kind == RopeKind::Interleaved),
                scale,
            },
            window: config.layers[layer].window,
            attention_output: get("attn_output.weight")?,
            post_attention_norm: post_norm("post_attention_norm.weight")?,
            feed_forward_norm: vector(context, numbers("ffn_norm.weight")?)?,
            feed_forward_norm_planar: vector(context, &to_planar(numbers("ffn_norm.weight")?))?,
            feed_forward: match config.experts {
                None => FeedForward::Gated {
                    gate_up: GateUp::new(weights.joined(&name("ffn_gate_up"))?)?,
                    down: get("ffn_down.weight")?,
                },
                Some(_) => {
                    FeedForward::Experts { router: get("ffn_gate_inp.weight")?, experts: Mixture::of(weights, layer)? }
                }
            },
            post_feed_forward_norm: post_norm("post_ffw_norm.weight")?,
        })
    }

    /// The attention of few tokens of this layer.
    pub fn attention_split(&self, config: &Config, splits: Splits) -> AttentionSplit {
        AttentionSplit {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: config.attention_scale,
            window: self.window,
            softcap: config.attention_softcap,
            splits,
        }
    }

    /// How many positions a token of this layer sees at most, of those that the cache has room for.
    pub fn seen(&self, capacity: usize) -> usize {
        self.window.map_or(capacity, |window| window.min(capacity))
    }
}

fn vector(context: &Context, values: &[f32]) -> Result<Tensor> {
    context.tensor(&HostTensor::f32(&[values.len()], values))
}
