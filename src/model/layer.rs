//! One layer of a transformer: its weights, and the order of its steps, which is only here. A set of ops does the steps (`LayerOps`):
//! `unfused.rs`, or `decode.rs` and `prefill.rs` if ops could be fused.
//!
//! A layer uses the tensors that it has, and nothing tests a model's name.

use super::Weights;
use super::altup::StreamsOfLayer;
use super::attention::Attention;
use super::config::{Config, ResidualScales};
use super::cross_attention::CrossAttention;
use super::feed_forward::{FeedForward, Inner};
use super::latent::LatentAttention;
use super::layer_ops::LayerOps;
use super::linear::Linear;
use super::mixer::RecurrentMixer;
use super::norm::Norm;
use super::per_layer::PerLayerInput;
use crate::error::Result;
use crate::tensor::ops::Scale;
use crate::tensor::{Context, Tensor};

/// The weights of one layer; matrices are [outputs, inputs].
pub(super) struct Layer {
    /// For what mixes tokens.
    pub(super) attention_norm: Norm,
    pub(super) attention: Option<Attention>,
    /// In place of attention over keys and values.
    pub(super) latent: Option<LatentAttention>,
    pub(super) recurrent: Option<RecurrentMixer>,
    /// For the result of what mixes tokens.
    pub(super) post_attention_norm: Norm,
    /// For the residual stream after that was added to it.
    pub(super) attention_output_norm: Norm,
    pub(super) cross_attention_norm: Norm,
    /// Attention to the output of an encoder.
    pub(super) cross_attention: Option<CrossAttention>,
    /// For the residual stream after that was added to it.
    pub(super) cross_attention_output_norm: Norm,
    pub(super) feed_forward_norm: Norm,
    pub(super) feed_forward: Option<FeedForward>,
    pub(super) post_feed_forward_norm: Norm,
    /// For the residual stream at the layer's end.
    pub(super) output_norm: Norm,
    /// The token's vector for this layer.
    pub(super) per_layer: Option<PerLayerInput>,
    /// The factor of the residual stream at the layer's end.
    pub(super) output_scale: Option<f32>,
    /// Some if there are several residual streams.
    pub(super) streams: Option<StreamsOfLayer>,
    /// The feed-forward runs beside attention, on the same input.
    pub(super) is_parallel: bool,
    pub(super) scales: ResidualScales,
}

impl Layer {
    /// If matrices were joined, the norms are also in the form for fused ops.
    pub fn new(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Self> {
        let fuses = weights.is_joined();
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let norm = |stem: &str| Norm::of(config, weights, &name(stem));
        let norm_before = |stem: &str| {
            if fuses { Norm::fused(context, config, weights, &name(stem)) } else { Ok(norm(stem)) }
        };
        let norm_after = |stem: &str| match norm(stem) {
            norm if norm.is_none() => Ok(norm),
            _ => norm_before(stem),
        };
        let of_layer = config.layers[index];
        let mixes = of_layer.attention.is_some() || of_layer.recurrent.is_some();
        // A layer that is a feed-forward alone has one norm.
        let feed_forward_norm = norm_before(if mixes { "ffn_norm" } else { "attn_norm" })?;
        let feed_forward = || FeedForward::new(context, config, weights, index);
        Ok(Self {
            attention_norm: norm_before("attn_norm")?,
            attention: Attention::of(context, config, weights, index)?,
            latent: LatentAttention::of(config, weights, index)?,
            recurrent: RecurrentMixer::of(context, config, weights, index)?,
            post_attention_norm: norm_after("post_attention_norm")?,
            attention_output_norm: norm("attn_output_norm"),
            cross_attention_norm: norm("cross_attn_norm"),
            cross_attention: CrossAttention::of(config, weights, index)?,
            cross_attention_output_norm: norm("cross_attn_output_norm"),
            is_parallel: config.is_parallel || (feed_forward_norm.is_none() && config.arch.parallel_without_norm),
            feed_forward_norm,
            feed_forward: of_layer.has_feed_forward.then(feed_forward).transpose()?,
            post_feed_forward_norm: norm_after("post_ffw_norm")?,
            output_norm: norm("layer_output_norm"),
            scales: config.residual_scales,
            per_layer: PerLayerInput::of(context, config, weights, index)?,
            streams: StreamsOfLayer::of(context, config, weights, index)?,
            output_scale: match weights.optional(&name("layer_output_scale.weight")) {
                Some(_) => weights.vector(&name("layer_output_scale.weight"))?.first().copied(),
                None => None,
            },
        })
    }

    /// The matrices whose products the op sets add adapters to.
    pub fn adaptable(&self) -> impl Iterator<Item = &Linear> {
        let attention = self.attention.iter().flat_map(|attention| {
            let projections = attention.queries_keys_values.iter().map(|(_, linear)| linear);
            projections.chain(&attention.gate).chain([&attention.output])
        });
        attention.chain(self.feed_forward.iter().flat_map(FeedForward::adaptable))
    }

    /// [n, n_embd] → the same. The residual stream `x` is changed. `vectors` [n, layers · length] are those of per-layer embeddings.
    pub fn run<O: LayerOps>(&self, ops: &O, x: &Tensor, vectors: Option<&Tensor>) -> Result<Tensor> {
        if let Some(streams) = &self.streams {
            return self.run_streams(ops, streams, x, vectors);
        }
        let beside = self.add_attention(ops, x)?;
        let x = &self.attention_output_norm.run(ops.context(), x)?;
        if let Some(cross) = &self.cross_attention {
            let inner = ops.cross_attention(cross, &ops.normed(&self.cross_attention_norm, x)?)?;
            ops.add_product(x, inner, &cross.output, &Norm::none(), 1.0)?;
        }
        let x = &self.cross_attention_output_norm.run(ops.context(), x)?;
        match beside {
            Some(f) => f.add_to(ops, x, &self.post_feed_forward_norm, self.scales.feed_forward)?,
            None => self.add_feed_forward(ops, x)?,
        }
        let x = &self.output_norm.run(ops.context(), x)?;
        match (&self.per_layer, self.output_scale) {
            (Some(input), Some(factor)) => {
                let inner = self.vector(ops, x, input, vectors)?;
                ops.add_product_and_scale(x, inner, &input.projection, &input.norm, factor)
            }
            (None, Some(factor)) => ops.context().run1(&Scale { factor }, &[x]),
            (_, None) => {
                self.add_vector(ops, x, x, vectors)?;
                Ok(x.clone())
            }
        }
    }

    /// The streams `x` [n, streams · n_embd] → the next layer's. The layer computes one of them.
    fn run_streams<O: LayerOps>(
        &self,
        ops: &O,
        streams: &StreamsOfLayer,
        x: &Tensor,
        vectors: Option<&Tensor>,
    ) -> Result<Tensor> {
        let context = ops.context();
        let (predicted, x) = streams.predicted(context, x)?;
        let laurel = streams.laurel(context, &self.attention_norm.run(context, &x)?)?;
        self.add_attention(ops, &x)?;
        let x = streams.with_laurel(context, &x, &laurel)?;
        self.add_feed_forward(ops, &x)?;
        let (corrected, gating) = streams.corrected(context, &predicted, &x)?;
        streams.add_to_others(context, &corrected, |to| self.add_vector(ops, &gating, to, vectors))?;
        Ok(corrected)
    }

    /// x += what mixes tokens. Returns the feed-forward if it runs beside it.
    fn add_attention<O: LayerOps>(&self, ops: &O, x: &Tensor) -> Result<Option<Inner<'_, O::Inner>>> {
        let mixes = self.attention.is_some() || self.latent.is_some() || self.recurrent.is_some();
        let h = mixes.then(|| ops.normed(&self.attention_norm, x)).transpose()?;
        let attended = match (&self.attention, &self.latent, &h) {
            (Some(attention), _, Some(h)) => Some((ops.attention(attention, h)?, &attention.output)),
            (None, Some(latent), Some(h)) => Some((ops.latent_attention(latent, h)?, &latent.output)),
            _ => None,
        };
        let mixed = match (&self.recurrent, &h) {
            (Some(mixer), Some(h)) => Some(ops.recurrent(mixer, h)?),
            _ => None,
        };
        let beside = match (&self.feed_forward, &h) {
            (Some(feed_forward), Some(h)) if self.is_parallel && self.feed_forward_norm.is_none() => {
                Some(feed_forward.inner(ops, h)?)
            }
            (Some(feed_forward), _) if self.is_parallel => {
                Some(feed_forward.inner(ops, &ops.normed(&self.feed_forward_norm, x)?)?)
            }
            _ => None,
        };
        // All that reads the stream has read it.
        if let Some((inner, output)) = attended {
            ops.add_product(x, inner, output, &self.post_attention_norm, self.scales.attention)?;
        }
        if let (Some(inner), Some(mixer)) = (mixed, &self.recurrent) {
            ops.add_product(x, inner, &mixer.output, &self.post_attention_norm, self.scales.recurrent)?;
        }
        Ok(beside)
    }

    /// x += the feed-forward, if the layer has one.
    fn add_feed_forward<O: LayerOps>(&self, ops: &O, x: &Tensor) -> Result<()> {
        let (before, after) = (&self.feed_forward_norm, &self.post_feed_forward_norm);
        match &self.feed_forward {
            Some(feed_forward) => feed_forward.add_to(ops, x, before, after, self.scales.feed_forward),
            None => Ok(()),
        }
    }

    /// to += the token's vector for this layer, gated by x, if there are such vectors.
    fn add_vector<O: LayerOps>(&self, ops: &O, x: &Tensor, to: &Tensor, vectors: Option<&Tensor>) -> Result<()> {
        let Some(input) = &self.per_layer else { return Ok(()) };
        ops.add_product(to, self.vector(ops, x, input, vectors)?, &input.projection, &input.norm, 1.0)
    }

    /// The token's vector for this layer, gated by x.
    fn vector<O: LayerOps>(
        &self,
        ops: &O,
        x: &Tensor,
        input: &PerLayerInput,
        vectors: Option<&Tensor>,
    ) -> Result<O::Inner> {
        let Some(vectors) = vectors else { bail!(Internal, "a layer without its vectors") };
        ops.per_layer_input(x, input, vectors)
    }
}
