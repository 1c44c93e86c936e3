//! One layer of a transformer: its weights, and the order of its steps, which is only here. A set of ops does the steps (`LayerOps`):
//! `unfused.rs`, or `decode.rs` and `prefill.rs` if ops could be fused.
//!
//! A layer uses the tensors that it has, and nothing tests a model's name.

use super::config::Config;
use super::delta_net::DeltaLayer;
use super::linear::Linear;
use super::mixture::{Combined, Mixture};
use super::norm::Norm;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::{QkvParts, Xielu};
use crate::tensor::{Context, HostTensor, Tensor};

/// The weights of one layer; matrices are [outputs, inputs].
pub(super) struct Layer {
    pub index: usize,
    pub attention_norm: Norm,
    /// Its number among the layers of its kind.
    pub state: usize,
    /// In place of attention.
    delta_net: Option<DeltaLayer>,
    /// Together [(n_heads + 2 · n_kv_heads) · head_dim, n_embd]. If ops are fused, the biases are in `Fused::bias`.
    pub queries_keys_values: Vec<(QkvParts, Linear)>,
    pub q_norm: Norm,
    pub k_norm: Norm,
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
    /// The feed-forward runs beside attention, on the same input.
    is_parallel: bool,
}

enum FeedForward {
    /// Gate and up are one matrix [2 · n_ff, n_embd] or two [n_ff, n_embd], down is [n_embd, n_ff].
    Gated { gate_up: Vec<Linear>, down: Linear },
    /// Up is [n_ff, n_embd].
    Ungated { up: Linear, down: Linear, xielu: Option<Xielu> },
    /// The router is [experts, n_embd].
    Experts { router: Linear, experts: Box<Mixture> },
}

/// The feed-forward up to the product or sum that adds it to the residual stream.
enum Inner<'a, O> {
    Dense(O, &'a Linear),
    Experts(Box<Combined>),
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

    fn experts(&self, h: &Self::Normed<'_>, router: &Linear, experts: &Mixture) -> Result<Combined>;

    /// x += the product, normed and scaled.
    fn add_product(&self, x: &Tensor, inner: Self::Inner, linear: &Linear, norm: &Norm) -> Result<()>;

    /// x += the experts' result, normed and scaled.
    fn add_experts(&self, x: &Tensor, combined: Combined, norm: &Norm) -> Result<()>;
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
            queries_keys_values: if is_recurrent { vec![] } else { Self::queries_keys_values(weights, index)? },
            q_norm: norm("attn_q_norm"),
            k_norm: norm("attn_k_norm"),
            per_head: Self::per_head(context, config, weights, index)?,
            attention_gate: has_gate.then(|| linear("attn_gate")).transpose()?,
            attention_output: linear(if is_recurrent { "ssm_out" } else { "attn_output" })?,
            post_attention_norm: norm_after("post_attention_norm")?,
            attention_output_norm: norm("attn_output_norm"),
            is_parallel: config.is_parallel || (feed_forward_norm.is_none() && config.arch.parallel_without_norm),
            feed_forward_norm,
            feed_forward: FeedForward::new(config, weights, index)?,
            post_feed_forward_norm: norm_after("post_ffw_norm")?,
            output_norm: norm("layer_output_norm"),
        })
    }

    fn queries_keys_values(weights: &Weights, index: usize) -> Result<Vec<(QkvParts, Linear)>> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        if let Some(runs) = weights.joined(&name("attn_qkv")) {
            let linear = |run: &Run| Linear { weight: run.matrix.clone(), bias: None };
            return Ok(runs.iter().map(|run| (QkvParts::of(run.first, run.count), linear(run))).collect());
        }
        if weights.optional_matrix(&name("attn_qkv.weight")).is_some() {
            return Ok(vec![(QkvParts::ALL, Linear::of(weights, &name("attn_qkv"))?)]);
        }
        let stems = ["attn_q", "attn_k", "attn_v"].iter().enumerate();
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

    /// [n, n_embd] → the same. The residual stream `x` is changed.
    pub fn run<O: LayerOps>(&self, ops: &O, x: &Tensor) -> Result<Tensor> {
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

        let f = match beside {
            Some(f) => f,
            None => self.feed_forward.inner(ops, &ops.normed(&self.feed_forward_norm, x)?)?,
        };
        match f {
            Inner::Dense(f, down) => ops.add_product(x, f, down, &self.post_feed_forward_norm)?,
            Inner::Experts(combined) => ops.add_experts(x, *combined, &self.post_feed_forward_norm)?,
        }
        self.output_norm.run(ops.context(), x)
    }
}

impl FeedForward {
    fn new(config: &Config, weights: &Weights, index: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        if config.layers[index].has_experts {
            return Ok(Self::Experts {
                router: linear("ffn_gate_inp")?,
                experts: Box::new(Mixture::of(weights, index)?),
            });
        }
        let down = linear("ffn_down")?;
        if let Some(runs) = weights.joined(&name("ffn_gate_up")) {
            let linear = |run: &Run| Linear { weight: run.matrix.clone(), bias: None };
            return Ok(Self::Gated { gate_up: runs.iter().map(linear).collect(), down });
        }
        let up = linear("ffn_up")?;
        if weights.optional_matrix(&name("ffn_gate.weight")).is_some() {
            return Ok(Self::Gated { gate_up: vec![linear("ffn_gate")?, up], down });
        }
        if up.weight.rows() == 2 * config.layers[index].n_ff {
            return Ok(Self::Gated { gate_up: vec![up], down });
        }
        Ok(Self::Ungated { up, down, xielu: xielu(weights, index)? })
    }

    fn inner<O: LayerOps>(&self, ops: &O, h: &O::Normed<'_>) -> Result<Inner<'_, O::Inner>> {
        Ok(match self {
            Self::Gated { gate_up, down } => Inner::Dense(ops.gated(h, gate_up, down)?, down),
            Self::Ungated { up, down, xielu } => Inner::Dense(ops.ungated(h, up, down, *xielu)?, down),
            Self::Experts { router, experts } => Inner::Experts(Box::new(ops.experts(h, router, experts)?)),
        })
    }
}

/// The numbers of xIELU, from the layer's tensors, whose softplus the α are.
fn xielu(weights: &Weights, index: usize) -> Result<Option<Xielu>> {
    let name = |stem: &str| format!("blk.{index}.xielu_{stem}.weight");
    if weights.optional(&name("alpha_p")).is_none() {
        return Ok(None);
    }
    let number = |stem: &str| match weights.vector(&name(stem))? {
        [number] => Ok(*number),
        other => bail!(Internal, "{} has {} numbers", name(stem), other.len()),
    };
    let softplus = |x: f32| if x > 30.0 { x } else { x.exp().ln_1p() };
    let beta = number("beta")?;
    let (alpha_p, alpha_n) = (softplus(number("alpha_p")?), beta + softplus(number("alpha_n")?));
    Ok(Some(Xielu { alpha_p, alpha_n, beta, epsilon: number("eps")? }))
}
