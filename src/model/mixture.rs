//! A mixture of experts (Shazeer et al. 2017, "Outrageously large neural networks"): a router on the GPU chooses some experts for each
//! token, and the weighted sum of their feed-forwards is the result.

use super::Weights;
use super::config::{Config, Experts};
use super::matrix::Matrix;
use crate::error::Result;
use crate::tensor::ops::{GroupExperts, MatMulExperts, MatVecExperts, RouteExperts, Swiglu};
use crate::tensor::{Context, Desc, Tensor};

/// The experts of a layer: stacked matrices. If an adapter can't bind a stack, each of its parts holds whole experts.
pub(super) struct Mixture {
    gate: Matrix, // [experts · n_ff, n_embd]
    up: Matrix,   // [experts · n_ff, n_embd]
    down: Matrix, // [experts · n_embd, n_ff]
}

/// The outputs of the experts, for `combine_experts`.
pub(super) struct Combined {
    /// The outputs of each token's experts in order, [n · used, n_embd].
    pub outputs: Tensor,
    pub weights: Tensor, // [n, used]
}

impl Mixture {
    pub fn of(weights: &Weights, layer: usize) -> Result<Self> {
        let get = |stem: &str| weights.matrix(&format!("blk.{layer}.{stem}.weight"));
        Ok(Self { gate: get("ffn_gate_exps")?, up: get("ffn_up_exps")?, down: get("ffn_down_exps")? })
    }

    /// Runs the experts for the normed tokens `h` [n, n_embd], whose rows may be in SoA, with the router's logits [n, experts].
    pub fn run(&self, context: &Context, config: &Config, h: &Tensor, logits: &Tensor, soa: bool) -> Result<Combined> {
        let Some(Experts { count, used, normalize, scale, .. }) = config.experts else {
            bail!(Internal, "a layer has experts and the model none")
        };
        let routes = context.run(&RouteExperts { used, normalize, scale }, &[logits])?; // [n, used] each
        let Ok([ids, weights]) = <[Tensor; 2]>::try_from(routes) else {
            bail!(Internal, "route_experts has two outputs")
        };
        let choice = Choice::of(context, count, ids, soa)?;
        let product = |stack: &Matrix, x: &Tensor, soa: bool| choice.products(context, count, stack, x, soa);
        let gate = product(&self.gate, h, soa)?; // [n · used, n_ff]
        let up = product(&self.up, h, soa)?; // [n · used, n_ff]
        let f = context.run1(&Swiglu { activation: config.arch.activation }, &[&gate, &up])?; // [n · used, n_ff]
        Ok(Combined { outputs: product(&self.down, &f, false)?, weights })
    }
}

/// From this number of pairs (a token and its expert) per expert on, pairs are grouped. With fewer, tiles would be mostly empty; with more,
/// ungrouped pairs would read every expert's matrices too often.
const GROUPED_FROM: usize = 8;

/// How tokens find their experts.
enum Choice {
    /// Each token by itself: ids [n, used].
    Ids(Tensor),
    /// Grouped by expert with `group_experts`.
    Grouped { order: Tensor, tiles: Tensor },
}

impl Choice {
    fn of(context: &Context, experts: usize, ids: Tensor, soa: bool) -> Result<Self> {
        if soa || ids.shape().elements() < GROUPED_FROM * experts {
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
    fn products(&self, context: &Context, experts: usize, stack: &Matrix, x: &Tensor, soa: bool) -> Result<Tensor> {
        let rows = stack.rows() / experts;
        // With parts, each row is written by the part that holds its expert.
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
                    context.run(&MatVecExperts { experts, soa, part }, &inputs)?
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
