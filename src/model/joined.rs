//! The layers of a model whose matrices could be joined: what `decode.rs` and `prefill.rs` run on.

use super::arch::Norm;
use super::config::Config;
use super::rope::RopeTable;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::{Activation, QkvParts};
use crate::tensor::{Context, HostTensor, Tensor, to_planar};

pub(super) struct Joined {
    pub layers: Vec<Layer>,
    pub output_norm_planar: Tensor, // [n_embd] in planes
}

/// The weights of one layer; matrices are [outputs, inputs].
pub(super) struct Layer {
    pub attention_norm: Tensor, // [n_embd]
    /// The same in planes, then rope's frequencies, then the biases: what one token's kernel reads.
    pub vectors: Tensor,
    pub qkv: Vec<(QkvParts, Tensor)>, // together [(n_heads + 2 · n_kv_heads) · head_dim, n_embd]
    pub bias: Option<Tensor>,         // [(n_heads + 2 · n_kv_heads) · head_dim]
    pub attention_output: Tensor,     // [n_embd, n_heads · head_dim]
    pub feed_forward_norm: Tensor,    // [n_embd]
    pub feed_forward_norm_planar: Tensor, // [n_embd] in planes
    pub gate_up: GateUp,
    pub down: Tensor, // [n_embd, n_ff]
}

/// [2 · n_ff, n_embd], or where the types differ twice [n_ff, n_embd].
pub(super) enum GateUp {
    Joined(Tensor),
    Apart(Tensor, Tensor),
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
        let is_missing = ["attn_norm.weight", "ffn_norm.weight"].iter().any(|tensor| !has_one(tensor));
        let has_more = [
            "attn_q_norm.weight",
            "post_attention_norm.weight",
            "post_ffw_norm.weight",
            "attn_output.bias",
            "ffn_gate.bias",
            "ffn_up.bias",
            "ffn_down.bias",
        ];
        let has_more = has_more.iter().any(|tensor| has_one(tensor)) || has("position_embd.weight");
        let is_scaled = [config.embedding_scale, config.residual_scale, config.logit_scale].iter().any(|&s| s != 1.0)
            || config.ropes.iter().any(|rope| rope.attention_factor() != 1.0);
        let is_capped = config.attention_softcap.or(config.logit_softcap).is_some();
        let is_windowed = config.layers.iter().any(|layer| layer.window.is_some() || layer.rope != Some(0));
        let is_gated = config.arch.norm == Norm::Rms && config.arch.activation == Activation::Silu;
        is_gated && !(is_missing || has_more || is_scaled || is_capped || is_windowed || config.experts.is_some())
    }

    pub fn new(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable]) -> Result<Self> {
        let vector = |values: &[f32]| context.tensor(&HostTensor::f32(&[values.len()], values));
        let layers = (0..config.n_layers)
            .map(|layer| {
                let name = |stem: &str| format!("blk.{layer}.{stem}");
                let get = |stem: &str| weights.get(&name(stem)).cloned();
                let mut biases = Vec::new();
                for stem in ["attn_q.bias", "attn_k.bias", "attn_v.bias"] {
                    if weights.optional(&name(stem)).is_some() {
                        biases.extend_from_slice(weights.vector(&name(stem))?);
                    }
                }
                let mut vectors = to_planar(weights.vector(&name("attn_norm.weight"))?);
                if let Some(rope) = config.layers[layer].rope {
                    vectors.extend_from_slice(&ropes[rope].frequencies);
                }
                vectors.extend_from_slice(&biases);
                Ok(Layer {
                    attention_norm: get("attn_norm.weight")?,
                    vectors: vector(&vectors)?,
                    qkv: weights
                        .joined(&name("attn_qkv"))?
                        .iter()
                        .map(|run| (QkvParts::of(run.first, run.count), run.matrix.clone()))
                        .collect(),
                    bias: if biases.is_empty() { None } else { Some(vector(&biases)?) },
                    attention_output: get("attn_output.weight")?,
                    feed_forward_norm: get("ffn_norm.weight")?,
                    feed_forward_norm_planar: vector(&to_planar(weights.vector(&name("ffn_norm.weight"))?))?,
                    gate_up: GateUp::new(weights.joined(&name("ffn_gate_up"))?)?,
                    down: get("ffn_down.weight")?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { layers, output_norm_planar: vector(&to_planar(weights.vector("output_norm.weight")?))? })
    }
}
