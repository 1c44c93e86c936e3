//! A mixture of experts (Shazeer et al. 2017, "Outrageously large neural networks"): a router on the GPU chooses some experts for each
//! token, and the weighted sum of their feed-forwards is the result.

use super::Weights;
use super::config::Config;
use super::experts_config::Experts;
use super::linear::Linear;
use super::matrix::Matrix;
use crate::error::{Error, Result};
use crate::tensor::ops::{
    Binary, BinaryKind, GroupExperts, IndexSelect, MatMulExperts, MatMulExpertsInt8, MatVecExperts, Quantize,
    RouteExperts, Swiglu, SwigluClamped, SwigluFused, Unary, UnaryKind,
};
use crate::tensor::{Context, DType, Desc, HostTensor, Shape, Tensor};

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

/// The form in which experts take the tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are.
    Rows,
    /// Rows are in SoA.
    Soa,
    /// As they are; for products they may be rounded to 8 bits.
    Fast,
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

/// The matrices of all experts, and their biases.
struct Stack {
    weight: Matrix,
    bias: Option<Tensor>, // [experts, rows of a matrix]
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
    pub fn of(context: &Context, weights: &Weights, layer: usize) -> Result<Self> {
        let name = |stem: &str, end: &str| format!("blk.{layer}.{stem}.{end}");
        let stack = |stem: &str| {
            let bias = weights.optional_matrix(&name(stem, "bias")).map(|bias| {
                // As plain numbers, whatever type the file has: those of all experts.
                let all: Vec<u32> = (0..bias.rows() as u32).collect();
                bias.embed(context, &context.tensor(&HostTensor::u32(&[all.len()], &all))?, false)
            });
            Ok::<_, Error>(Stack { weight: weights.matrix(&name(stem, "weight"))?, bias: bias.transpose()? })
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

    /// Runs the experts for the normed tokens `h` [n, n_embd], with the router's logits [n, experts]. Weights are multiplied by `factor`. The
    /// expert of all tokens is left to the caller.
    pub fn run(
        &self,
        context: &Context,
        config: &Config,
        h: &Tensor,
        logits: &Tensor,
        form: Form,
        factor: f32,
    ) -> Result<Combined> {
        let soa = form == Form::Soa;
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
        // Of what this stack reads.
        let rounded = |x: &Tensor, stack: &Stack| {
            let is_wanted = form == Form::Fast && choice.takes_int8(&stack.weight);
            is_wanted.then(|| context.run(&Quantize, &[x])).transpose()
        };
        let product = |stack: &Stack, x: &Tensor, int8: &Option<Vec<Tensor>>, soa: bool| match int8 {
            Some(int8) if choice.takes_int8(&stack.weight) => choice.products_int8(context, count, stack, int8),
            _ => choice.products(context, count, stack, x, soa),
        };
        let activation = config.activation;
        let f = match &self.first {
            First::GateAndUp { gate, up } => {
                let int8 = rounded(h, gate)?;
                let (gate, up) = (product(gate, h, &int8, soa)?, product(up, h, &int8, soa)?); // [n · used, n_ff]
                match config.clamped_swiglu {
                    Some([alpha, limit]) => {
                        context.run1(&SwigluClamped { alpha, limit, pairs: false }, &[&gate, &up])?
                    }
                    None => context.run1(&Swiglu { activation }, &[&gate, &up])?,
                }
            }
            First::Up(up) => {
                let kind = UnaryKind::try_from(activation)?;
                context.run1(&Unary { kind }, &[&product(up, h, &rounded(h, up)?, soa)?])?
            }
            First::Joined(both) => {
                let both = product(both, h, &rounded(h, both)?, soa)?; // [n · used, 2 · n_ff]
                match config.clamped_swiglu {
                    Some([alpha, limit]) => context.run1(&SwigluClamped { alpha, limit, pairs: true }, &[&both])?,
                    None => context.run1(&SwigluFused { activation }, &[&both])?,
                }
            }
        }; // [n · used, n_ff]
        let outputs = product(&self.down, &f, &rounded(&f, &self.down)?, false)?;
        Ok(Combined { outputs, weights, shared: None })
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

    /// Whether products with this stack can be of int8.
    fn takes_int8(&self, weight: &Matrix) -> bool {
        let has_view = matches!(weight.dtype(), DType::Weight(format) if format.int8.is_some());
        has_view && matches!(self, Self::Grouped { .. })
    }

    /// The same as `products` with the quants and scales of x.
    fn products_int8(&self, context: &Context, experts: usize, stack: &Stack, x: &[Tensor]) -> Result<Tensor> {
        let (Self::Grouped { order, tiles }, [quants, scales]) = (self, x) else {
            bail!(Internal, "int8 of {} tensors for experts", x.len())
        };
        self.by_parts(context, experts, stack, |weight, part, out| {
            let inputs = [quants, scales, order, tiles, weight].into_iter().chain(&stack.bias).chain(out);
            let op = MatMulExpertsInt8 { experts, bias: stack.bias.is_some(), part };
            context.run(&op, &inputs.collect::<Vec<_>>())
        })
    }

    fn pairs(&self) -> usize {
        match self {
            Self::Ids(ids) => ids.shape().elements(),
            Self::Grouped { order, .. } => order.shape().elements(),
        }
    }

    /// The products of x [n or n · used, columns] with the matrices of the experts: [n · used, rows of a matrix].
    fn products(&self, context: &Context, experts: usize, stack: &Stack, x: &Tensor, soa: bool) -> Result<Tensor> {
        let bias = stack.bias.is_some();
        self.by_parts(context, experts, stack, |weight, part, out| match self {
            Self::Ids(ids) => {
                let inputs = [x, ids, weight].into_iter().chain(&stack.bias).chain(out);
                context.run(&MatVecExperts { experts, soa, bias, part }, &inputs.collect::<Vec<_>>())
            }
            Self::Grouped { order, tiles } => {
                let inputs = [x, order, tiles, weight].into_iter().chain(&stack.bias).chain(out);
                context.run(&MatMulExperts { experts, bias, part }, &inputs.collect::<Vec<_>>())
            }
        })
    }

    /// What `product` gives for a stack. If that is in parts, each row is written by the part that holds its expert: it gets the number of its
    /// first expert, and the output of all.
    fn by_parts(
        &self,
        context: &Context,
        experts: usize,
        stack: &Stack,
        product: impl Fn(&Tensor, Option<usize>, Option<&Tensor>) -> Result<Vec<Tensor>>,
    ) -> Result<Tensor> {
        let rows = stack.weight.rows() / experts;
        let out = match stack.weight.whole() {
            Some(_) => None,
            None => Some(context.empty(Desc::f32(&[self.pairs(), rows]), "experts")?),
        };
        let mut result = None;
        for (first_row, weight) in stack.weight.parts() {
            let part = out.as_ref().map(|_| first_row / rows);
            result = product(weight, part, out.as_ref())?.into_iter().next();
        }
        result.or(out).ok_or_else(|| err!(Internal, "a product with experts gave nothing"))
    }
}
