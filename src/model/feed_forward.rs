//! The feed-forward of a layer: dense, a mixture of experts, or both. A set of ops does its steps (`LayerOps`).

use super::adapters::Beside;
use super::config::Config;
use super::layer_ops::LayerOps;
use super::linear::Linear;
use super::mixture::{Combined, Mixture};
use super::norm::Norm;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::{self, Activation, Fill, Xielu};
use crate::tensor::{Context, Tensor};

pub(super) enum FeedForward {
    /// Gate and up are one matrix [2 · n_ff, n_embd] or two [n_ff, n_embd], down is [n_embd, n_ff].
    /// Only gates that are `sparsity` standard deviations above their mean count, if it is given.
    Gated {
        gate_up: Vec<Linear>,
        down: Linear,
        sparsity: Option<f32>,
        /// Of the input of down.
        sub_norm: Option<Box<Norm>>,
    },
    /// Up is [n_ff, n_embd].
    Ungated {
        up: Linear,
        down: Linear,
        xielu: Option<Xielu>,
    },
    /// The router is [experts, n_embd].
    Experts {
        router: Linear,
        experts: Box<Mixture>,
    },
    Both(Box<DenseAndExperts>),
}

/// A dense feed-forward and experts that read the same residual stream, each with norms of its own (Gemma 4). Their sum is the result.
pub(super) struct DenseAndExperts {
    dense: FeedForward,
    /// Of the dense result.
    dense_norm: Norm,
    /// Of what the router reads: without weights, then scaled by numbers of its own.
    router_norm: Norm,
    router: Linear,
    /// Before the experts, and of their result.
    experts_norms: [Norm; 2],
    experts: Mixture,
}

/// The feed-forward up to the product or sum that adds it to the residual stream.
pub(super) enum Inner<'a, O> {
    Dense(O, &'a Linear),
    /// Its result [n, n_embd].
    Whole(Tensor),
    Experts(Box<Combined>),
}

impl FeedForward {
    pub fn new(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        if config.layers[index].has_experts && config.arch.has_dense_beside_experts() {
            let both = DenseAndExperts::new(context, config, weights, index)?;
            return Ok(Self::Both(Box::new(both)));
        }
        if config.layers[index].has_experts {
            return Ok(Self::Experts {
                router: linear("ffn_gate_inp")?,
                experts: Box::new(Mixture::of(context, weights, index)?),
            });
        }
        Self::dense(config, weights, index)
    }

    fn dense(config: &Config, weights: &Weights, index: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        let (down, sparsity) = (linear("ffn_down")?, config.activation_sparsity[index]);
        let sub_norm = Norm::of(config, weights, &name("ffn_sub_norm"));
        let sub_norm = (!sub_norm.is_none()).then(|| Box::new(sub_norm));
        if let Some(runs) = weights.joined(&name("ffn_gate_up")) {
            let linear = |run: &Run| Linear { weight: run.matrix.clone(), bias: None };
            return Ok(Self::Gated { gate_up: runs.iter().map(linear).collect(), down, sparsity, sub_norm });
        }
        let up = linear("ffn_up")?;
        if weights.optional_matrix(&name("ffn_gate.weight")).is_some() {
            return Ok(Self::Gated { gate_up: vec![linear("ffn_gate")?, up], down, sparsity, sub_norm });
        }
        if up.weight.rows() == 2 * config.layers[index].n_ff {
            return Ok(Self::Gated { gate_up: vec![up], down, sparsity, sub_norm });
        }
        Ok(Self::Ungated { up, down, xielu: xielu(weights, index)? })
    }

    /// The matrices whose products the op sets add adapters to: none of experts.
    pub fn adaptable(&self) -> Vec<&Linear> {
        match self {
            Self::Gated { gate_up, down, .. } => gate_up.iter().chain([down]).collect(),
            Self::Ungated { up, down, .. } => vec![up, down],
            Self::Experts { .. } => Vec::new(),
            Self::Both(both) => both.dense.adaptable(),
        }
    }

    /// x += the result for the normed x, normed and scaled.
    pub fn add_to<O: LayerOps>(&self, ops: &O, x: &Tensor, before: &Norm, after: &Norm, scale: f32) -> Result<()> {
        match self {
            Self::Both(both) => both.add_to(ops, x, before, after, scale),
            _ => self.inner(ops, &ops.normed(before, x)?)?.add_to(ops, x, after, scale),
        }
    }

    pub fn inner<O: LayerOps>(&self, ops: &O, h: &O::Normed<'_>) -> Result<Inner<'_, O::Inner>> {
        let whole = match self {
            Self::Gated { gate_up, down, sparsity: None, sub_norm: None } => match &gate_up[..] {
                [both] => ops.whole(h, both, down, true)?,
                _ => None,
            },
            Self::Ungated { up, down, xielu: None } => ops.whole(h, up, down, false)?,
            _ => None,
        };
        if let Some(y) = whole {
            return Ok(Inner::Whole(y));
        }
        Ok(match self {
            Self::Gated { gate_up, down, sparsity, sub_norm } => {
                let inner = ops.gated(h, gate_up, down, *sparsity)?;
                let inner = match sub_norm {
                    Some(norm) => ops.normed_inner(inner, norm)?,
                    None => inner,
                };
                Inner::Dense(inner, down)
            }
            Self::Ungated { up, down, xielu } => Inner::Dense(ops.ungated(h, up, down, *xielu)?, down),
            Self::Experts { router, experts } => Inner::Experts(Box::new(ops.experts(h, h, router, experts)?)),
            Self::Both(_) => {
                bail!(Internal, "a dense feed-forward and experts read the residual stream, not one norm of it")
            }
        })
    }
}

/// The whole feed-forward of `h` [n, n_embd] as one op, if the device has it. What adapters add has no part in it.
pub(super) fn whole(
    context: &Context,
    activation: Activation,
    beside: Option<Beside<'_>>,
    h: impl FnOnce() -> Result<Tensor>,
    [up, down]: [&Linear; 2],
    is_gated: bool,
) -> Result<Option<Tensor>> {
    let (Some(of_up), Some(of_down)) = (up.weight.whole(), down.weight.whole()) else { return Ok(None) };
    let is_adapted = |beside: Beside<'_>| beside.touches(&up.weight) || beside.touches(&down.weight);
    if !ops::FeedForward::is_for(context, [of_up, of_down]) || beside.is_some_and(is_adapted) {
        return Ok(None);
    }
    let h = h()?;
    let biases = [&up.bias, &down.bias];
    let op = ops::FeedForward { activation, is_gated, biases: biases.map(Option::is_some) };
    let inputs: Vec<&Tensor> = [&h, of_up, of_down].into_iter().chain(biases.into_iter().flatten()).collect();
    context.run1(&op, &inputs).map(Some)
}

impl<O> Inner<'_, O> {
    /// x += the result, normed and scaled.
    pub fn add_to(self, ops: &impl LayerOps<Inner = O>, x: &Tensor, norm: &Norm, scale: f32) -> Result<()> {
        match self {
            Self::Dense(f, down) => ops.add_product(x, f, down, norm, scale),
            Self::Whole(y) => ops.add_normed(x, &y, norm, scale),
            Self::Experts(combined) => ops.add_experts(x, *combined, norm),
        }
    }
}

impl DenseAndExperts {
    fn new(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let norm = |weight: &[f32]| Norm::rms(context, config.norm_eps, weight);
        let named = |stem: &str| norm(weights.vector(&name(stem))?);
        let scale = 1.0 / (config.n_embd as f32).sqrt();
        let router: Vec<f32> = weights.vector(&name("ffn_gate_inp.scale"))?.iter().map(|of| of * scale).collect();
        Ok(Self {
            dense: FeedForward::dense(config, weights, index)?,
            dense_norm: named("post_ffw_norm_1.weight")?,
            router_norm: norm(&router)?,
            router: Linear::of(weights, &name("ffn_gate_inp"))?,
            experts_norms: [named("pre_ffw_norm_2.weight")?, named("post_ffw_norm_2.weight")?],
            experts: Mixture::of(context, weights, index)?,
        })
    }

    fn add_to<O: LayerOps>(&self, ops: &O, x: &Tensor, before: &Norm, after: &Norm, scale: f32) -> Result<()> {
        let sum = ops.context().run1(&Fill { shape: x.shape(), value: 0.0 }, &[])?;
        self.dense.inner(ops, &ops.normed(before, x)?)?.add_to(ops, &sum, &self.dense_norm, 1.0)?;
        let [experts_norm, post_norm] = &self.experts_norms;
        let (h, routed) = (ops.normed(experts_norm, x)?, ops.normed(&self.router_norm, x)?);
        ops.add_experts(&sum, ops.experts(&h, &routed, &self.router, &self.experts)?, post_norm)?;
        ops.add_normed(x, &sum, after, scale)
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
