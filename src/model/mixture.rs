//! A mixture of experts (Shazeer et al. 2017, "Outrageously large neural networks"): each token goes through the feed-forwards of a few
//! experts, which a router chooses on the GPU, and takes the weighted sum of what they give.

use super::Weights;
use super::config::{Config, Experts};
use super::matrix::Matrix;
use crate::error::Result;
use crate::tensor::ops::{MatVecExperts, RouteExperts, Swiglu};
use crate::tensor::{Context, Desc, Tensor};

/// The experts of a layer: matrices of all of them one behind the other. Where an adapter can't bind a stack, its parts hold whole
/// experts.
pub(super) struct Mixture {
    gate: Matrix, // [experts · n_ff, n_embd]
    up: Matrix,   // [experts · n_ff, n_embd]
    down: Matrix, // [experts · n_embd, n_ff]
}

/// What experts made of tokens, for `combine_experts`.
pub(super) struct Combined {
    /// Of each token's experts one after the other, [n · used, n_embd].
    pub outputs: Tensor,
    pub weights: Tensor, // [n, used]
}

impl Mixture {
    pub fn of(weights: &Weights, layer: usize) -> Result<Self> {
        let get = |stem: &str| weights.matrix(&format!("blk.{layer}.{stem}.weight"));
        Ok(Self { gate: get("ffn_gate_exps")?, up: get("ffn_up_exps")?, down: get("ffn_down_exps")? })
    }

    /// Of the normed tokens `h` [n, n_embd], whose rows may stand in planes, and the router's logits for them [n, experts].
    pub fn run(
        &self,
        context: &Context,
        config: &Config,
        h: &Tensor,
        logits: &Tensor,
        planar: bool,
    ) -> Result<Combined> {
        let Some(Experts { count, used, normalize, scale, .. }) = config.experts else {
            bail!(Internal, "a layer has experts and the model none")
        };
        let routes = context.run(&RouteExperts { used, normalize, scale }, &[logits])?; // [n, used] each
        let Ok([ids, weights]) = <[Tensor; 2]>::try_from(routes) else {
            bail!(Internal, "route_experts has two outputs")
        };
        let product = |stack: &Matrix, x: &Tensor, planar: bool| products(context, count, stack, x, &ids, planar);
        let gate = product(&self.gate, h, planar)?; // [n · used, n_ff]
        let up = product(&self.up, h, planar)?; // [n · used, n_ff]
        let f = context.run1(&Swiglu { activation: config.arch.activation }, &[&gate, &up])?; // [n · used, n_ff]
        Ok(Combined { outputs: product(&self.down, &f, false)?, weights })
    }
}

/// The products of x [n or n · used, columns] with the matrices of the experts `ids` [n, used]: [n · used, rows of a matrix].
fn products(
    context: &Context,
    experts: usize,
    stack: &Matrix,
    x: &Tensor,
    ids: &Tensor,
    planar: bool,
) -> Result<Tensor> {
    if let Some(whole) = stack.whole() {
        return context.run1(&MatVecExperts { experts, planar, part: None }, &[x, ids, whole]);
    }
    let rows = stack.rows() / experts;
    // Every row is written with the part that its expert is in.
    let out = context.empty(Desc::f32(&[ids.shape().elements(), rows]), "experts")?;
    for (first_row, part) in stack.parts() {
        let op = MatVecExperts { experts, planar, part: Some(first_row / rows) };
        context.run(&op, &[x, ids, part, &out])?;
    }
    Ok(out)
}
