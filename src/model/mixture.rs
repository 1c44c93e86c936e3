//! A mixture of experts (Shazeer et al. 2017, "Outrageously large neural networks"): each token goes through the feed-forwards of a few
//! experts, which a router chooses on the GPU, and takes the weighted sum of what they give.

use super::Weights;
use super::config::{Config, Experts};
use super::matrix::Matrix;
use crate::error::Result;
use crate::tensor::ops::{GroupExperts, MatMulExperts, MatVecExperts, RouteExperts, Swiglu};
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
        let choice = Choice::of(context, count, ids, planar)?;
        let product = |stack: &Matrix, x: &Tensor, planar: bool| choice.products(context, count, stack, x, planar);
        let gate = product(&self.gate, h, planar)?; // [n · used, n_ff]
        let up = product(&self.up, h, planar)?; // [n · used, n_ff]
        let f = context.run1(&Swiglu { activation: config.arch.activation }, &[&gate, &up])?; // [n · used, n_ff]
        Ok(Combined { outputs: product(&self.down, &f, false)?, weights })
    }
}

/// Pairs of a token and an expert, for each expert, from which on they are grouped. Fewer make tiles that are mostly empty, whose time
/// goes into computing nothing; more read every expert's matrices too often.
const GROUPED_FROM: usize = 8;

/// The experts of tokens.
enum Choice {
    /// Each token by itself: ids [n, used].
    Ids(Tensor),
    /// By expert, as `group_experts` gives them.
    Grouped { order: Tensor, tiles: Tensor },
}

impl Choice {
    fn of(context: &Context, experts: usize, ids: Tensor, planar: bool) -> Result<Self> {
        if planar || ids.shape().elements() < GROUPED_FROM * experts {
            return Ok(Self::Ids(ids));
        }
        match <[Tensor; 2]>::try_from(context.run(&GroupExperts { experts }, &[&ids])?) {
            Ok([order, tiles]) => Ok(Self::Grouped { order, tiles }),
            Err(_) => bail!(Internal, "group_experts has two outputs"),
        }
    }

    fn pairs(&self) -> usize {
        match self {
            Self::Ids(ids) => ids.shape().elements(),
            Self::Grouped { order, .. } => order.shape().elements(),
        }
    }

    /// The products of x [n or n · used, columns] with the matrices of the experts: [n · used, rows of a matrix].
    fn products(&self, context: &Context, experts: usize, stack: &Matrix, x: &Tensor, planar: bool) -> Result<Tensor> {
        let rows = stack.rows() / experts;
        // With parts every row is written by the part that its expert is in.
        let out = match stack.whole() {
            Some(_) => None,
            None => Some(context.empty(Desc::f32(&[self.pairs(), rows]), "experts")?),
        };
        let mut product = None;
        for (first_row, weight) in stack.parts() {
            let part = out.as_ref().map(|_| first_row / rows);
            let outputs = match self {
                Self::Ids(ids) => {
                    let inputs = [x, ids, weight].into_iter().chain(&out).collect::<Vec<_>>();
                    context.run(&MatVecExperts { experts, planar, part }, &inputs)?
                }
                Self::Grouped { order, tiles } => {
                    let inputs = [x, order, tiles, weight].into_iter().chain(&out).collect::<Vec<_>>();
                    context.run(&MatMulExperts { experts, part }, &inputs)?
                }
            };
            product = outputs.into_iter().next();
        }
        product.or(out).ok_or_else(|| err!(Internal, "a product with experts gave nothing"))
    }
}
