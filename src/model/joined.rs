//! The layers of a model whose matrices could be joined: what `decode.rs` and `prefill.rs` run on.

use super::arch::{Norm, RopeKind};
use super::config::Config;
use super::matrix::Matrix;
use super::mixture::Mixture;
use super::plain::NormWeights;
use super::rope::RopeTable;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::{AttentionSplit, QkvParts, RowNorm, Splits};
use crate::tensor::{Context, HostTensor, Tensor, to_planar};

pub(super) struct Joined {
    pub layers: Vec<Layer>,
    pub output_norm: PreNorm,
}

/// The weights of one layer; matrices are [outputs, inputs].
pub(super) struct Layer {
    pub attention_norm: PreNorm,
    /// Its vectors in planes, then rope's frequencies, then the biases: what one token's kernel reads.
    pub vectors: Tensor,
    pub qkv: Vec<(QkvParts, Matrix)>, // together [(n_heads + 2 · n_kv_heads) · head_dim, n_embd]
    pub bias: Option<Tensor>,         // [(n_heads + 2 · n_kv_heads) · head_dim]
    /// Of each head of queries, then of keys, [2 · head_dim], or of all of them together, [(n_heads + n_kv_heads) · head_dim].
    pub head_norms: Option<Tensor>,
    pub rope: LayerRope,
    /// A token sees so many positions; `None`: all.
    pub window: Option<usize>,
    pub attention_output: Matrix,              // [n_embd, n_heads · head_dim]
    pub attention_output_bias: Option<Tensor>, // [n_embd]
    pub post_attention_norm: Option<PostNorm>,
    pub feed_forward_norm: PreNorm,
    pub feed_forward: FeedForward,
    pub down_bias: Option<Tensor>, // [n_embd]
    pub post_feed_forward_norm: Option<PostNorm>,
}

/// The norm before the products of attention, of the feed-forward or of the head.
pub(super) struct PreNorm {
    pub kind: RowNorm,
    /// In planes, weight and bias behind each other: as the ops of one token want them.
    pub planar: Tensor,
    /// As those of many tokens want them; nothing where there is no norm.
    pub rows: Option<NormWeights>,
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
    /// Up is [n_ff, n_embd].
    Ungated { up: Matrix, bias: Option<Tensor>, down: Matrix },
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
        let is_rms = config.arch.norm == Norm::Rms;
        let is_gated = config.experts.is_some() || !config.arch.has_ungated_feed_forward();
        let has_feed_forward_norm = has_one("ffn_norm.weight");
        let is_post_normed = has_one("post_attention_norm.weight");
        let is_serial = has_feed_forward_norm || !config.arch.parallel_without_norm;
        let biases_fit = !(has_one("ffn_gate.bias") || (is_gated && has_one("ffn_up.bias")));
        // Biases would have to be added before the norm.
        let has_head_norms = has_one("attn_q_norm.weight");
        let head_norms_fit = !has_head_norms || (is_rms && !has_one("attn_q.bias") && !has_one("attn_qkv.bias"));
        let post_norms_fit = !is_post_normed || is_rms;
        let scale_fits = config.residual_scale == 1.0 || !(is_post_normed || config.experts.is_some());
        let experts_fit = config.experts.is_none() || (is_rms && has_feed_forward_norm && !is_post_normed);
        is_serial && biases_fit && head_norms_fit && post_norms_fit && scale_fits && experts_fit
    }

    pub fn new(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable]) -> Result<Self> {
        let layers = (0..config.n_layers).map(|layer| Layer::new(context, config, weights, ropes, layer));
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            output_norm: PreNorm::of(context, config, weights, "output_norm")?,
        })
    }
}

impl PreNorm {
    fn of(context: &Context, config: &Config, weights: &Weights, stem: &str) -> Result<Self> {
        let (kind, values) = Self::vectors(config, weights, stem)?;
        Ok(Self { kind, planar: vector(context, &values)?, rows: NormWeights::optional(weights, stem) })
    }

    /// The norm of the tensors of a stem, and its vectors in planes.
    fn vectors(config: &Config, weights: &Weights, stem: &str) -> Result<(RowNorm, Vec<f32>)> {
        let epsilon = config.norm_eps;
        let named = |end: &str| weights.vector(&format!("{stem}.{end}"));
        if weights.optional(&format!("{stem}.weight")).is_none() {
            // Kernels want a vector, whatever it holds.
            return Ok((RowNorm::None, vec![1.0; config.n_embd]));
        }
        let weight = to_planar(named("weight")?);
        match config.arch.norm {
            Norm::Rms => Ok((RowNorm::Rms { epsilon }, weight)),
            Norm::Layer => {
                let bias = match weights.optional(&format!("{stem}.bias")) {
                    Some(_) => to_planar(named("bias")?),
                    None => vec![0.0; weight.len()],
                };
                Ok((RowNorm::Layer { epsilon }, [weight, bias].concat()))
            }
        }
    }
}

impl Layer {
    fn new(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable], layer: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let get = |stem: &str| weights.matrix(&name(stem));
        let numbers = |stem: &str| weights.vector(&name(stem));
        let bias = |stem: &str| weights.optional(&name(stem)).cloned();
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
        let (_, attention_norm) = PreNorm::vectors(config, weights, &name("attn_norm"))?;
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
            attention_norm: PreNorm::of(context, config, weights, &name("attn_norm"))?,
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
            attention_output_bias: bias("attn_output.bias"),
            down_bias: bias("ffn_down.bias"),
            post_attention_norm: post_norm("post_attention_norm.weight")?,
            feed_forward_norm: PreNorm::of(context, config, weights, &name("ffn_norm"))?,
            feed_forward: match config.experts {
                None if config.arch.has_ungated_feed_forward() => FeedForward::Ungated {
                    up: get("ffn_up.weight")?,
                    bias: bias("ffn_up.bias"),
                    down: get("ffn_down.weight")?,
                },
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
