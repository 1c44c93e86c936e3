//! The weights of a layer's attention. The op sets run it.

use super::config::Config;
use super::distances;
use super::layer_config::LayerConfig;
use super::linear::Linear;
use super::norm::Norm;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::QkvParts;
use crate::tensor::{Context, HostTensor, Tensor};

/// Matrices are [outputs, inputs].
pub(super) struct Attention {
    /// The number of its layer.
    pub index: usize,
    /// Which keys and values it has, among those that layers keep.
    pub state: usize,
    /// Together [(n_heads + 2 · n_kv_heads) · head_dim, n_embd]; without keys and values if the layer reuses those of another one, and without
    /// values if they are the keys. If ops are fused, the biases are in `Fused::bias`.
    pub queries_keys_values: Vec<(QkvParts, Linear)>,
    pub q_norm: Norm,
    pub k_norm: Norm,
    /// Of each head's values.
    pub v_norm: Norm,
    /// Numbers of each head: a sink's score, a slope of ALiBi, or what each distance adds.
    pub per_head: Option<Tensor>,
    /// The gate of the result, [n_heads · head_dim, n_embd].
    pub gate: Option<Linear>,
    /// Of the input of the last product.
    pub sub_norm: Norm,
    pub output: Linear, // [n_embd, n_heads · head_dim]
}

impl Attention {
    /// That of a layer, if it has any over keys and values.
    pub fn of(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Option<Self>> {
        let Some(state) = config.layers[index].attention.filter(|_| config.latent.is_none()) else { return Ok(None) };
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        let has_gate = weights.optional_matrix(&name("attn_gate.weight")).is_some();
        Ok(Some(Self {
            index,
            state,
            queries_keys_values: Self::queries_keys_values(weights, index, &config.layers[index])?,
            q_norm: Norm::of(config, weights, &name("attn_q_norm")),
            k_norm: Norm::of(config, weights, &name("attn_k_norm")),
            v_norm: if config.arch.norms_values {
                Norm::rms(context, config.norm_eps, &vec![1.0; config.layers[index].head_dim])?
            } else {
                Norm::none()
            },
            per_head: Self::per_head(context, config, weights, index)?,
            gate: has_gate.then(|| linear("attn_gate")).transpose()?,
            sub_norm: Norm::of(config, weights, &name("attn_sub_norm")),
            output: linear("attn_output")?,
        }))
    }

    fn queries_keys_values(weights: &Weights, index: usize, layer: &LayerConfig) -> Result<Vec<(QkvParts, Linear)>> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        if let Some(runs) = weights.joined(&name("attn_qkv")) {
            let linear = |run: &Run| Linear { weight: run.matrix.clone(), bias: None };
            return Ok(runs.iter().map(|run| (QkvParts::of(run.first, run.count), linear(run))).collect());
        }
        if weights.optional_matrix(&name("attn_qkv.weight")).is_some() {
            return Ok(vec![(QkvParts::ALL, Linear::of(weights, &name("attn_qkv"))?)]);
        }
        let stems = ["attn_q", "attn_k", "attn_v"].iter().enumerate().filter(|(_, stem)| !layer.lacks(stem));
        stems.map(|(part, stem)| Ok((QkvParts::of(part, 1), Linear::of(weights, &name(stem))?))).collect()
    }

    /// The sinks' scores, ALiBi's slopes, or what distances add; an encoder has a table for all layers.
    fn per_head(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Option<Tensor>> {
        if let Some(sinks) = weights.optional(&format!("blk.{index}.attn_sinks.weight")) {
            return Ok(Some(sinks.clone()));
        }
        if config.distances.is_some() && !config.arch.is_encoder {
            return distances::table(context, config, weights);
        }
        let Some(largest) = config.alibi else { return Ok(None) };
        let slopes = distances::alibi_slopes(config.n_heads, largest);
        context.tensor(&HostTensor::f32(&[slopes.len()], &slopes)).map(Some)
    }
}
