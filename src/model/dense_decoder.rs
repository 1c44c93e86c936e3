//! A dense decoder as its parts: for training, which goes through them forwards and backwards by ops of its own. What such a pass does not
//! compute is refused by name, so a model that comes through is one that it computes as the other passes do.

use super::arch::{self, RopeKind};
use super::attention::Attention;
use super::config::Config;
use super::feed_forward::FeedForward;
use super::layer::Layer;
use super::layer_config::LayerConfig;
use super::linear::Linear;
use super::matrix::Matrix;
use super::norm::Norm;
use super::transformer::Transformer;
use crate::error::{Error, Result};
use crate::tensor::ops::Scale;
use crate::tensor::{Context, Tensor};

/// The parts of a model whose layers are attention over keys and values and a gated feed-forward, each with RMS norms.
pub struct DenseDecoder {
    context: Context,
    /// Its dimensions and constants.
    pub config: Config,
    embedding: Matrix,
    /// In their order.
    pub layers: Vec<DenseLayer>,
    /// Before the head.
    pub output_norm: Option<RmsWeight>,
    /// [vocab_size, n_embd]; the embedding again if they are tied.
    pub output: Matrix,
}

/// A layer of it. Norms that a model lacks are `None`.
pub struct DenseLayer {
    /// Before attention.
    pub attention_norm: Option<RmsWeight>,
    /// Queries, keys and values, [(n_heads + 2 · n_kv_heads) · head_dim, n_embd] together.
    pub queries_keys_values: Vec<DenseProduct>,
    /// Of all queries, keys and values, if the matrices have none of their own.
    pub queries_keys_values_bias: Option<Tensor>,
    /// Of each head's query.
    pub q_norm: Option<RmsWeight>,
    /// Of each head's key.
    pub k_norm: Option<RmsWeight>,
    /// How queries and keys are turned.
    pub rope: Option<DenseRope>,
    /// [n_embd, n_heads · head_dim]
    pub attention_output: DenseProduct,
    /// Of what attention adds to the residual stream.
    pub post_attention_norm: Option<RmsWeight>,
    /// Before the feed-forward.
    pub feed_forward_norm: Option<RmsWeight>,
    /// Gate and up, [2 · n_ff, n_embd] together.
    pub gate_up: Vec<DenseProduct>,
    /// [n_embd, n_ff]
    pub down: DenseProduct,
    /// Of what the feed-forward adds to the residual stream.
    pub post_feed_forward_norm: Option<RmsWeight>,
    /// Its sizes.
    pub config: LayerConfig,
}

/// A product with a matrix, and what is added to it.
pub struct DenseProduct {
    /// [outputs, inputs]
    pub matrix: Matrix,
    /// [outputs]
    pub bias: Option<Tensor>,
}

/// An RMS norm.
pub struct RmsWeight {
    /// What is added to the mean of squares.
    pub epsilon: f32,
    /// The factor of each column.
    pub weight: Tensor,
}

/// How rope turns heads.
pub struct DenseRope {
    /// The angle of each pair at position 1, [pairs].
    pub frequencies: Tensor,
    /// The factor of sine and cosine.
    pub scale: f32,
    /// Pairs are neighbours.
    pub interleaved: bool,
}

impl DenseDecoder {
    /// The embedding of `tokens` [n]: [n, n_embd].
    pub fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        let x = self.embedding.embed(&self.context, tokens, false)?;
        match self.config.embedding_scale {
            1.0 => Ok(x),
            factor => self.context.run1(&Scale { factor }, &[&x]),
        }
    }
}

impl Transformer {
    /// Its parts, if it is a dense decoder.
    pub fn dense_decoder(&self) -> Result<DenseDecoder> {
        let Config { encoder, latent, experts, altup, clamped_swiglu, .. } = &self.config;
        let Config { attention_clamp, attention_temperature, alibi, distances, arch, .. } = &self.config;
        for (is_there, what) in [
            (arch.is_encoder || encoder.is_some() || self.encoder.is_some(), "an encoder"),
            (arch.norm != arch::Norm::Rms, "layer norms"),
            (latent.is_some(), "attention over latents"),
            (experts.is_some() || clamped_swiglu.is_some(), "experts"),
            (altup.is_some() || self.streams.is_some(), "several residual streams"),
            (self.per_layer.is_some(), "per-layer embeddings"),
            (self.positions.is_some(), "learned positions"),
            (self.config.embedding_width != self.config.n_embd, "embeddings of another width"),
            (!self.embedding_norm.is_none(), "a norm of the embedding"),
            (!self.recurrent.is_empty(), "a recurrent layer"),
            (self.output_bias.is_some(), "a bias of the head"),
            (attention_clamp.is_some(), "clamped queries, keys and values"),
            (attention_temperature.is_some(), "queries scaled by their position"),
            (alibi.is_some() || distances.is_some(), "scores that depend on distances"),
            (arch.norms_heads_after_rope, "norms of heads after rope"),
            (arch.norms_heads_together, "norms over all heads"),
            (arch.norms_values, "norms of values"),
            (self.config.rounds_activations, "rounded activations"),
        ] {
            if is_there {
                return Err(refused(&self.config, what));
            }
        }
        let layers = self.layers.iter().enumerate().map(|(index, layer)| self.dense_layer(index, layer));
        Ok(DenseDecoder {
            context: self.context.clone(),
            config: self.config.clone(),
            embedding: self.token_embedding.clone(),
            layers: layers.collect::<Result<_>>()?,
            output_norm: norm(&self.config, &self.output_norm)?,
            output: self.output.clone(),
        })
    }

    fn dense_layer(&self, index: usize, layer: &Layer) -> Result<DenseLayer> {
        let (config, of_layer) = (&self.config, self.config.layers[index]);
        // All fields, so that a new one asks what becomes of it here.
        let Layer {
            attention_norm,
            attention,
            latent,
            recurrent,
            post_attention_norm,
            attention_output_norm,
            cross_attention_norm,
            cross_attention,
            cross_attention_output_norm,
            feed_forward_norm,
            feed_forward,
            post_feed_forward_norm,
            output_norm,
            per_layer,
            output_scale,
            streams,
            is_parallel,
            scales: _,
        } = layer;
        let Some(attention) = attention else { return Err(refused(config, "a layer without attention")) };
        let Attention { queries_keys_values, q_norm, k_norm, v_norm, per_head, gate, sub_norm, output, .. } = attention;
        for (is_there, what) in [
            (latent.is_some(), "attention over latents"),
            (recurrent.is_some(), "recurrent layers"),
            (!attention_output_norm.is_none() || !output_norm.is_none(), "norms of the residual stream"),
            (cross_attention.is_some() || !cross_attention_norm.is_none(), "attention to an encoder"),
            (!cross_attention_output_norm.is_none(), "attention to an encoder"),
            (per_layer.is_some(), "per-layer embeddings"),
            (output_scale.is_some(), "scaled layers"),
            (streams.is_some(), "several residual streams"),
            (*is_parallel, "a feed-forward beside attention"),
            (per_head.is_some(), "sinks of attention"),
            (gate.is_some(), "gated attention"),
            (!sub_norm.is_none(), "a norm before the product of attention"),
            (!v_norm.is_none(), "norms of values"),
            (of_layer.reuses_kv, "layers that share keys and values"),
            (of_layer.values_are_keys, "keys that are values"),
        ] {
            if is_there {
                return Err(refused(config, what));
            }
        }
        let (gate_up, down) = match feed_forward {
            Some(FeedForward::Gated { gate_up, down, sparsity: None, sub_norm: None }) => (gate_up, down),
            Some(FeedForward::Gated { .. }) => {
                return Err(refused(config, "feed-forwards with sparse or normed gates"));
            }
            Some(FeedForward::Ungated { .. }) => return Err(refused(config, "feed-forwards without gates")),
            Some(FeedForward::Experts { .. } | FeedForward::Both(_)) => return Err(refused(config, "experts")),
            None => return Err(refused(config, "a layer without a feed-forward")),
        };
        let fused = self.fused.as_ref().and_then(|fused| fused.layers.get(index));
        let rope = |number: usize| {
            let tensor = self.rope(number)?;
            let interleaved = config.ropes[number].kind == RopeKind::Interleaved;
            Ok::<_, Error>(DenseRope { frequencies: tensor.frequencies.clone(), scale: tensor.scale, interleaved })
        };
        Ok(DenseLayer {
            attention_norm: norm(config, attention_norm)?,
            queries_keys_values: queries_keys_values.iter().map(|(_, linear)| product(linear)).collect(),
            queries_keys_values_bias: fused.and_then(|vectors| vectors.bias.clone()),
            q_norm: norm(config, q_norm)?,
            k_norm: norm(config, k_norm)?,
            rope: of_layer.rope.map(rope).transpose()?,
            attention_output: product(output),
            post_attention_norm: norm(config, post_attention_norm)?,
            feed_forward_norm: norm(config, feed_forward_norm)?,
            gate_up: gate_up.iter().map(product).collect(),
            down: product(down),
            post_feed_forward_norm: norm(config, post_feed_forward_norm)?,
            config: of_layer,
        })
    }
}

fn refused(config: &Config, what: &str) -> Error {
    err!(
        UnsupportedArchitecture,
        "training does not support {what}, which the model ({}) has; supported are dense decoders with RMS norms and gated feed-forwards, such as \
         Llama, Qwen 2 and 3, Gemma 2 and 3 and SmolLM",
        config.arch.name
    )
}

fn norm(config: &Config, norm: &Norm) -> Result<Option<RmsWeight>> {
    match norm.rms_weight() {
        Some((epsilon, weight)) => Ok(Some(RmsWeight { epsilon, weight: weight.clone() })),
        None if norm.is_none() => Ok(None),
        None => Err(refused(config, "other norms than RMS")),
    }
}

fn product(linear: &Linear) -> DenseProduct {
    DenseProduct { matrix: linear.weight.clone(), bias: linear.bias.clone() }
}
