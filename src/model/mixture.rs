//! A mixture of experts (Shazeer et al. 2017, "Outrageously large neural networks"): a router on the GPU chooses some experts for each
//! token, and the weighted sum of their feed-forwards is the result.

use super::Weights;
use super::config::Config;
use super::experts_config::Experts;
use super::linear::Linear;
use super::matrix::Matrix;
use crate::error::{Error, Result};
use crate::tensor::ops::{
    Add, Binary, BinaryKind, GroupExperts, IndexSelect, MatMulExperts, MatVecExperts, RouteExperts, Swiglu,
    SwigluClamped, SwigluFused, Unary, UnaryKind,
};
use crate::tensor::{Context, Desc, Shape, Tensor};

/// The experts of a layer: stacked matrices. If an adapter can't bind a stack, each of its parts holds whole experts.
pub(super) struct Mixture {
    first: First,
    down: Stack, // [experts · n_embd, n_ff]
    /// What is added to the router's scores before experts are chosen by them.
    correction: Option<Tensor>, // [experts]
    /// The factors of the experts' results.
    scales: Option<Tensor>, // [experts]
    /// The expert that every token uses.
    pub shared: Option<SharedExpert>,
}

/// What reads the tokens.
enum First {
    /// [experts · n_ff, n_embd] each
    GateAndUp { gate: Stack, up: Stack },
    /// [experts · 2 · n_ff, n_embd]
    Joined(Stack),
    /// [experts · n_ff, n_embd], without a gate
    Up(Stack),
}

/// The matrices of all experts, and their biases, [experts, rows of a matrix].
struct Stack {
    weight: Matrix,
    bias: Option<Matrix>,
}

/// An expert that every token uses.
pub(super) struct SharedExpert {
    /// Gate and up, or up alone if there is no gate.
    pub gate_up: Vec<Linear>,
    pub down: Linear,
    /// Its result is multiplied by the sigmoid of this product, [1, n_embd].
    pub gate: Option<Linear>,
}

/// The outputs of the experts, for `combine_experts`.
pub(super) struct Combined {
    /// The outputs of each token's experts in order, [n · used, n_embd].
    pub outputs: Tensor,
    pub weights: Tensor, // [n, used]
    /// The result of the expert that every token uses, [n, n_embd].
    pub shared: Option<Tensor>,
}

impl Mixture {
    pub fn of(weights: &Weights, layer: usize) -> Result<Self> {
        let name = |stem: &str, end: &str| format!("blk.{layer}.{stem}.{end}");
        let stack = |stem: &str| {
            let bias = weights.optional_matrix(&name(stem, "bias"));
            Ok::<_, Error>(Stack { weight: weights.matrix(&name(stem, "weight"))?, bias })
        };
        let has = |stem: &str| weights.optional_matrix(&name(stem, "weight")).is_some();
        let first = if has("ffn_gate_up_exps") {
            First::Joined(stack("ffn_gate_up_exps")?)
        } else if has("ffn_gate_exps") {
            First::GateAndUp { gate: stack("ffn_gate_exps")?, up: stack("ffn_up_exps")? }
        } else {
            First::Up(stack("ffn_up_exps")?)
        };
        let correction = weights.optional(&name("exp_probs_b", "bias")).cloned();
        let scales = weights.optional(&name("ffn_down_exps", "scale")).cloned();
        let shared = SharedExpert::of(weights, layer)?;
        Ok(Self { first, down: stack("ffn_down_exps")?, correction, scales, shared })
    }

    /// Runs the experts for the normed tokens `h` [n, n_embd], whose rows may be in SoA, with the router's logits [n, experts]. Weights are
    /// multiplied by `factor`. The expert of all tokens is left to the caller.
    pub fn run(
        &self,
        context: &Context,
        config: &Config,
        h: &Tensor,
        logits: &Tensor,
        soa: bool,
        factor: f32,
    ) -> Result<Combined> {
        let Some(Experts { count, used, gating, normalize, scale, groups, .. }) = config.experts else {
            bail!(Internal, "a layer has experts and the model none")
        };
        let bias = self.correction.is_some();
        let route = RouteExperts { used, gating, bias, normalize, scale: scale * factor, groups };
        let inputs: Vec<&Tensor> = [logits].into_iter().chain(&self.correction).collect();
        let routes = context.run(&route, &inputs)?; // [n, used] each
        let Ok([ids, weights]) = <[Tensor; 2]>::try_from(routes) else {
            bail!(Internal, "route_experts has two outputs")
        };
        let weights = match &self.scales {
            Some(scales) => {
                let pairs = ids.reshaped(Shape::from([ids.shape().elements()]))?;
                let select = IndexSelect { float: true, signed: false };
                let scales = context.run1(&select, &[&scales.reshaped(Shape::from([1, count, 1]))?, &pairs])?;
                let product = Binary { kind: BinaryKind::Mul };
                context.run1(&product, &[&weights, &scales.reshaped(weights.shape())?])?
            }
            None => weights,
        };
        let choice = Choice::of(context, count, ids.clone(), soa)?;
        let product = |stack: &Stack, x: &Tensor, soa: bool| {
            let y = choice.products(context, count, &stack.weight, x, soa)?;
            if let Some(bias) = &stack.bias {
                // A bias of each pair's expert, like the embedding of a token.
                let ids = ids.reshaped(Shape::from([ids.shape().elements()]))?;
                context.run(&Add, &[&y, &bias.embed(context, &ids, false)?])?;
            }
            Ok::<_, Error>(y)
        };
        let activation = config.activation;
        let f = match &self.first {
            First::GateAndUp { gate, up } => {
                let (gate, up) = (product(gate, h, soa)?, product(up, h, soa)?); // [n · used, n_ff]
                match config.clamped_swiglu {
                    Some([alpha, limit]) => {
                        context.run1(&SwigluClamped { alpha, limit, pairs: false }, &[&gate, &up])?
                    }
                    None => context.run1(&Swiglu { activation }, &[&gate, &up])?,
                }
            }
            First::Up(up) => {
                let kind = UnaryKind::try_from(activation)?;
                context.run1(&Unary { kind }, &[&product(up, h, soa)?])?
            }
            First::Joined(both) => {
                let both = product(both, h, soa)?; // [n · used, 2 · n_ff]
                match config.clamped_swiglu {
                    Some([alpha, limit]) => context.run1(&SwigluClamped { alpha, limit, pairs: true }, &[&both])?,
                    None => context.run1(&SwigluFused { activation }, &[&both])?,
                }
            }
        }; // [n · used, n_ff]
        Ok(Combined { outputs: product(&self.down, &f, false)?, weights, shared: None })
    }
}

impl SharedExpert {
    fn of(weights: &Weights, layer: usize) -> Result<Option<Self>> {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        if weights.optional_matrix(&name("ffn_down_shexp.weight")).is_none() {
            return Ok(None);
        }
        let gate = weights.optional_matrix(&name("ffn_gate_inp_shexp.weight"));
        let has_gate = weights.optional_matrix(&name("ffn_gate_shexp.weight")).is_some();
        let stems = if has_gate { &["ffn_gate_shexp", "ffn_up_shexp"][..] } else { &["ffn_up_shexp"] };
        Ok(Some(Self {
            gate_up: stems.iter().map(|stem| linear(stem)).collect::<Result<_>>()?,
            down: linear("ffn_down_shexp")?,
            gate: gate.map(|weight| Linear { weight, bias: None }),
        }))
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
