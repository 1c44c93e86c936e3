//! One layer of a transformer: its weights, and the order of its steps, which is only here. A set of ops does the steps (`LayerOps`):
//! `unfused.rs`, or `decode.rs` and `prefill.rs` if ops could be fused.
//!
//! A layer uses the tensors that it has, and nothing tests a model's name.

use super::config::Config;
use super::delta_net::DeltaLayer;
use super::feed_forward::FeedForward;
use super::layer_config::LayerConfig;
use super::linear::Linear;
use super::mixture::{Combined, Mixture};
use super::norm::Norm;
use super::per_layer::PerLayerInput;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::{QkvParts, Scale, Xielu};
use crate::tensor::{Context, HostTensor, Tensor};

/// The weights of one layer; matrices are [outputs, inputs].
pub(super) struct Layer {
    pub index: usize,
    pub attention_norm: Norm,
    /// Its number among the layers of its kind.
    pub state: usize,
    /// In place of attention.
    delta_net: Option<DeltaLayer>,
    /// Together [(n_heads + 2 · n_kv_heads) · head_dim, n_embd]; without keys and values if the layer reuses those of another one, and without
    /// values if they are the keys. If ops are fused, the biases are in `Fused::bias`.
    pub queries_keys_values: Vec<(QkvParts, Linear)>,
    pub q_norm: Norm,
    pub k_norm: Norm,
    /// Of each head's values.
    pub v_norm: Norm,
    /// A number for each head: a sink's score, or a slope of ALiBi.
    pub per_head: Option<Tensor>,
    /// The gate of attention's result, [n_heads · head_dim, n_embd].
    pub attention_gate: Option<Linear>,
    pub attention_output: Linear, // [n_embd, n_heads · head_dim], or of a gated delta net [n_embd, heads · value_dim]
    /// For the result of attention.
    pub post_attention_norm: Norm,
    /// For the residual stream after attention was added to it.
    attention_output_norm: Norm,
    feed_forward_norm: Norm,
    feed_forward: FeedForward,
    pub post_feed_forward_norm: Norm,
    /// For the residual stream at the layer's end.
    output_norm: Norm,
    /// The token's vector for this layer.
    per_layer: Option<PerLayerInput>,
    /// The factor of the residual stream at the layer's end.
    output_scale: Option<f32>,
    /// The feed-forward runs beside attention, on the same input.
    is_parallel: bool,
}

/// The ops that compute a layer: each does one step, or several at once.
pub(super) trait LayerOps {
    /// The residual stream as a part of the layer reads it: normed, or with the norm that its op applies.
    type Normed<'a>;
    /// The input of the product whose result is added to the residual stream.
    type Inner;

    fn context(&self) -> &Context;

    fn normed<'a>(&self, norm: &'a Norm, x: &'a Tensor) -> Result<Self::Normed<'a>>;

    /// The heads' sums over the values [n, n_heads · head_dim], for `attention_output`.
    fn attention(&self, layer: &Layer, h: &Self::Normed<'_>) -> Result<Self::Inner>;

    /// The heads' results of a gated delta net [n, heads · value_dim], for `attention_output`.
    fn delta_net(&self, layer: &Layer, net: &DeltaLayer, h: &Self::Normed<'_>) -> Result<Self::Inner>;

    /// [n, n_ff], for `down`
    fn gated(&self, h: &Self::Normed<'_>, gate_up: &[Linear], down: &Linear) -> Result<Self::Inner>;

    /// [n, n_ff], for `down`
    fn ungated(&self, h: &Self::Normed<'_>, up: &Linear, down: &Linear, xielu: Option<Xielu>) -> Result<Self::Inner>;

    /// The router reads `routed`, which mostly is `h`.
    fn experts(
        &self,
        h: &Self::Normed<'_>,
        routed: &Self::Normed<'_>,
        router: &Linear,
        experts: &Mixture,
    ) -> Result<Combined>;

    /// The layer's vectors among those of all layers, `vectors` [n, layers · length], gated by the residual stream: [n, length], for
    /// `input.projection`.
    fn per_layer_input(&self, x: &Tensor, input: &PerLayerInput, vectors: &Tensor) -> Result<Self::Inner>;

    /// x += the product, normed and scaled.
    fn add_product(&self, x: &Tensor, inner: Self::Inner, linear: &Linear, norm: &Norm) -> Result<()>;

    /// x += the experts' result, normed and scaled.
    fn add_experts(&self, x: &Tensor, combined: Combined, norm: &Norm) -> Result<()>;

    /// x += y, normed and scaled.
    fn add_normed(&self, x: &Tensor, y: &Tensor, norm: &Norm) -> Result<()>;
}

impl Layer {
    /// If matrices were joined, the norms are also in the form for fused ops.
    pub fn new(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Self> {
        let fuses = weights.is_joined();
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        let norm = |stem: &str| Norm::of(config, weights, &name(stem));
        let norm_before = |stem: &str| {
            if fuses { Norm::fused(context, config, weights, &name(stem)) } else { Ok(norm(stem)) }
        };
        let norm_after = |stem: &str| match norm(stem) {
            norm if norm.is_none() => Ok(norm),
            _ => norm_before(stem),
        };
        let feed_forward_norm = norm_before("ffn_norm")?;
        let is_recurrent = config.layers[index].is_recurrent;
        let has_gate = weights.optional_matrix(&name("attn_gate.weight")).is_some();
        Ok(Self {
            index,
            attention_norm: norm_before("attn_norm")?,
            state: config.layers[index].state,
            delta_net: is_recurrent.then(|| DeltaLayer::new(context, config, weights, index)).transpose()?,
            queries_keys_values: if is_recurrent {
                vec![]
            } else {
                Self::queries_keys_values(weights, index, &config.layers[index])?
            },
            q_norm: norm("attn_q_norm"),
            k_norm: norm("attn_k_norm"),
            v_norm: if config.arch.norms_values {
                Norm::rms(context, config.norm_eps, &vec![1.0; config.layers[index].head_dim])?
            } else {
                Norm::none()
            },
            per_head: Self::per_head(context, config, weights, index)?,
            attention_gate: has_gate.then(|| linear("attn_gate")).transpose()?,
            attention_output: linear(if is_recurrent { "ssm_out" } else { "attn_output" })?,
            post_attention_norm: norm_after("post_attention_norm")?,
            attention_output_norm: norm("attn_output_norm"),
            is_parallel: config.is_parallel || (feed_forward_norm.is_none() && config.arch.parallel_without_norm),
            feed_forward_norm,
            feed_forward: FeedForward::new(context, config, weights, index)?,
            post_feed_forward_norm: norm_after("post_ffw_norm")?,
            output_norm: norm("layer_output_norm"),
            per_layer: PerLayerInput::of(context, config, weights, index)?,
            output_scale: match weights.optional(&name("layer_output_scale.weight")) {
                Some(_) => weights.vector(&name("layer_output_scale.weight"))?.first().copied(),
                None => None,
            },
        })
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

    /// The sinks' scores, or ALiBi's slopes: powers of 2^(−b / n) for the n heads, n rounded down to a power of two, and between them those
    /// of twice as many for the heads that are left.
    fn per_head(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Option<Tensor>> {
        if let Some(sinks) = weights.optional(&format!("blk.{index}.attn_sinks.weight")) {
            return Ok(Some(sinks.clone()));
        }
        let Some(largest) = config.alibi else { return Ok(None) };
        let heads = config.n_heads;
        let power = (heads + 1).next_power_of_two() / 2;
        let slope = |head: usize| {
            let steps = if head < power { (head + 1) as f32 } else { (head - power) as f32 + 0.5 };
            (-largest * steps / power as f32).exp2()
        };
        let slopes: Vec<f32> = (0..heads).map(slope).collect();
        context.tensor(&HostTensor::f32(&[heads], &slopes)).map(Some)
    }

    /// [n, n_embd] → the same. The residual stream `x` is changed. `vectors` [n, layers · length] are those of per-layer embeddings.
    pub fn run<O: LayerOps>(&self, ops: &O, x: &Tensor, vectors: Option<&Tensor>) -> Result<Tensor> {
        let h = ops.normed(&self.attention_norm, x)?;
        let a = match &self.delta_net {
            Some(net) => ops.delta_net(self, net, &h)?,
            None => ops.attention(self, &h)?,
        };
        let beside = match self.is_parallel {
            true if self.feed_forward_norm.is_none() => Some(self.feed_forward.inner(ops, &h)?),
            true => Some(self.feed_forward.inner(ops, &ops.normed(&self.feed_forward_norm, x)?)?),
            false => None,
        };
        ops.add_product(x, a, &self.attention_output, &self.post_attention_norm)?;
        let x = &self.attention_output_norm.run(ops.context(), x)?;

        let (before, after) = (&self.feed_forward_norm, &self.post_feed_forward_norm);
        match beside {
            Some(f) => f.add_to(ops, x, after)?,
            None => self.feed_forward.add_to(ops, x, before, after)?,
        }
        let x = &self.output_norm.run(ops.context(), x)?;
        if let Some(input) = &self.per_layer {
            let Some(vectors) = vectors else { bail!(Internal, "a layer without its vectors") };
            ops.add_product(x, ops.per_layer_input(x, input, vectors)?, &input.projection, &input.norm)?;
        }
        match self.output_scale {
            Some(factor) => ops.context().run1(&Scale { factor }, &[x]),
            None => Ok(x.clone()),
        }
    }
}
