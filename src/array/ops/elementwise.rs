//! Functions of elements, which broadcast and promote.

use std::rc::Rc;

use super::functions::{Binary, Choice, Compare, Logical, Scalar, Unary};
use crate::array::dtype::{DType, promote};
use crate::array::gradient::history::Pull;
use crate::array::graph::node::{Array, MOST_STEPS, Pending, State, Storage};
use crate::array::layout::broadcast_shapes;
use crate::error::Result;
use crate::tensor::Shape;

/// Storage buffers that a kernel reads: with what it writes eight, which are all that every adapter has.
const MOST_INPUTS: usize = 7;
/// The same besides the two that a product reads, which may be bound a second time.
const MOST_BESIDE_PRODUCT: usize = 5;
/// Steps that are taken again for each element of a larger result, rather than kept in memory.
const STEPS_TAKEN_AGAIN: usize = 4;

impl Array {
    /// A function of the elements of arrays that broadcast and have the types that it takes.
    pub(crate) fn apply(what: &str, function: &'static str, inputs: Vec<Array>, dtype: DType) -> Result<Array> {
        let shapes: Vec<Shape> = inputs.iter().map(Array::shape).collect();
        let Some(shape) = broadcast_shapes(&shapes) else {
            let shapes: Vec<String> = shapes.iter().map(ToString::to_string).collect();
            bail!(ShapeMismatch, "{what}: the shapes {} don't broadcast", shapes.join(" and "))
        };
        let library = inputs[0].library().clone();
        if let Some(other) = inputs.iter().find(|input| !input.library().is_same(&library)) {
            bail!(WrongDevice, "{what}: a tensor {} is one of another device", other.shape());
        }
        for input in &inputs {
            let is_larger = shape.elements() > input.elements();
            if is_larger && (input.has_product() || input.steps() > STEPS_TAKEN_AGAIN) {
                input.stored_now()?;
            }
        }
        keep_small(&inputs)?;
        let steps = 1 + inputs.iter().map(Array::steps).sum::<usize>();
        Ok(Array::pending(&library, shape, dtype, Pending::Apply { function, inputs, steps }))
    }

    /// The same values, in memory of their own once they are computed.
    pub fn apart(&self) -> Result<Array> {
        let function = match self.dtype().computed() {
            DType::I32 => "keep_i32",
            DType::U32 => "keep_u32",
            DType::Bool => "keep_bool",
            _ => "keep_f32",
        };
        let apart = Self::apply("clone", function, vec![self.clone()], self.dtype())?;
        apart.derived_from("clone", self, |gradient| Ok(gradient.clone()))
    }

    /// The same values in another type; of its own type the array itself, and not a copy. Floats are cut towards zero; beyond an integer type
    /// they become its nearest value, and NaN 0.
    pub fn cast(&self, dtype: DType) -> Result<Array> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        self.cast_to(dtype)?.derived_from("cast", self, |gradient| Ok(gradient.clone()))
    }

    fn cast_to(&self, to: DType) -> Result<Array> {
        let from = self.dtype();
        if let Some(bits) = self.constant() {
            let scalar = match from {
                DType::Bool => Scalar::Bool(bits != 0),
                DType::U32 => Scalar::Int(i64::from(bits)),
                DType::I32 => Scalar::Int(i64::from(bits as i32)),
                _ => Scalar::Float(f64::from(f32::from_bits(bits))),
            };
            if let Ok(bits) = scalar.bits("cast", to) {
                return self.library().constant(self.dims(), to, bits);
            }
        }
        let function = match (from.computed(), to.computed()) {
            (DType::F32, DType::F32) => match to {
                DType::F16 => "round_f16",
                DType::BF16 => "round_bf16",
                _ => "keep_f32",
            },
            (DType::F32, DType::I32) => "f32_to_i32",
            (DType::F32, DType::U32) => "f32_to_u32",
            (DType::F32, _) => "f32_to_bool",
            (DType::I32, DType::F32) => "i32_to_f32",
            (DType::I32, DType::U32) => "i32_to_u32",
            (DType::I32, _) => "i32_to_bool",
            (DType::U32, DType::F32) => "u32_to_f32",
            (DType::U32, DType::I32) => "u32_to_i32",
            (DType::U32, _) => "u32_to_bool",
            (_, DType::F32) => "bool_to_f32",
            (_, DType::I32) => "bool_to_i32",
            (_, _) => "bool_to_u32",
        };
        Self::apply("cast", function, vec![self.clone()], to)
    }

    /// A function of each element.
    pub fn unary(&self, kind: Unary) -> Result<Array> {
        let dtype = match kind {
            Unary::Abs | Unary::Relu if matches!(self.dtype(), DType::U32 | DType::Bool) => return self.apart(),
            Unary::Neg if self.dtype() == DType::Bool => {
                bail!(DtypeMismatch, "neg: bools have no sign; not() gives the opposite")
            }
            Unary::Abs | Unary::Neg | Unary::Relu => self.dtype(),
            Unary::Floor if !self.dtype().is_float() => return self.apart(),
            _ => self.dtype().floating(),
        };
        let result = Self::apply(kind.name(), kind.function(dtype), vec![self.cast(dtype)?], dtype)?;
        // What a kernel after a product can store along the way is what is saved if possible.
        let saved = match kind {
            Unary::Neg | Unary::Floor => None,
            Unary::Exp | Unary::Relu | Unary::Rsqrt | Unary::Sigmoid | Unary::Sqrt | Unary::Tanh => Some(&result),
            _ => Some(self),
        };
        let rule = move |pull: &Pull<Array>| Ok(vec![Some(unary_gradient(kind, pull)?)]);
        result.clone().derived(kind.name(), &[self], &[saved], rule)
    }

    /// A function of the elements of two arrays.
    pub fn binary(&self, kind: Binary, other: &Array) -> Result<Array> {
        self.binary_in(kind, other, promote(self.dtype(), other.dtype()))
    }

    fn binary_in(&self, kind: Binary, other: &Array, met: DType) -> Result<Array> {
        let dtype = match kind {
            Binary::Div => met.floating(),
            Binary::Sub if met == DType::Bool => {
                bail!(DtypeMismatch, "sub: bools have no difference; xor() tells where they differ")
            }
            Binary::Pow if met == DType::Bool => DType::I32,
            _ => met,
        };
        let inputs = vec![self.cast(dtype)?, other.cast(dtype)?];
        let (a, b) = (self.requires_grad(), other.requires_grad());
        let (saves_a, saves_b) = match kind {
            Binary::Add | Binary::Sub => (false, false),
            Binary::Mul => (b, a),
            Binary::Div => (b, true),
            Binary::Pow | Binary::Maximum | Binary::Minimum => (true, true),
        };
        let saved = [saves_a.then_some(self), saves_b.then_some(other)];
        let rule = move |pull: &Pull<Array>| binary_gradients(kind, pull);
        Self::apply(kind.name(), kind.function(dtype), inputs, dtype)?.derived(
            kind.name(),
            &[self, other],
            &saved,
            rule,
        )
    }

    /// The same with a number, on the right; on the left if `reversed`.
    pub fn binary_scalar(&self, kind: Binary, scalar: Scalar, reversed: bool) -> Result<Array> {
        let dtype = scalar.dtype_beside(self.dtype());
        let dtype = if kind == Binary::Div { dtype.floating() } else { dtype };
        let scalar = self.beside(kind.name(), scalar, dtype)?;
        let (a, b) = if reversed { (&scalar, self) } else { (self, &scalar) };
        a.binary_in(kind, b, dtype)
    }

    /// A number as an array without dimensions.
    fn beside(&self, what: &str, scalar: Scalar, dtype: DType) -> Result<Array> {
        self.library().constant(&[], dtype, scalar.bits(what, dtype)?)
    }

    /// A comparison with another array.
    pub fn compare(&self, kind: Compare, other: &Array) -> Result<Array> {
        self.compare_in(kind, other, promote(self.dtype(), other.dtype()))
    }

    fn compare_in(&self, kind: Compare, other: &Array, met: DType) -> Result<Array> {
        let (a, b, name) = (self.cast(met)?, other.cast(met)?, kind.name());
        // Three of them are in the text; the others are the same the other way round.
        let (kind, inputs, negated) = match kind {
            Compare::NotEqual => (Compare::Equal, vec![a, b], true),
            Compare::Greater => (Compare::Lower, vec![b, a], false),
            Compare::GreaterEqual => (Compare::LowerEqual, vec![b, a], false),
            kind => (kind, vec![a, b], false),
        };
        let compared = Self::apply(name, kind.function(met), inputs, DType::Bool)?;
        if negated { compared.logical_not() } else { Ok(compared) }
    }

    /// A comparison with a number.
    pub fn compare_scalar(&self, kind: Compare, scalar: Scalar) -> Result<Array> {
        let dtype = scalar.dtype_beside(self.dtype());
        self.compare_in(kind, &self.beside(kind.name(), scalar, dtype)?, dtype)
    }

    /// A function of two truth values.
    pub fn logical(&self, kind: Logical, other: &Array) -> Result<Array> {
        let inputs = vec![self.cast(DType::Bool)?, other.cast(DType::Bool)?];
        Self::apply(kind.name(), kind.function(DType::Bool), inputs, DType::Bool)
    }

    /// The opposite truth value.
    pub fn logical_not(&self) -> Result<Array> {
        Self::apply("logical_not", "not_bool", vec![self.cast(DType::Bool)?], DType::Bool)
    }

    /// The element of `x` where `self` is true, and that of `y` elsewhere.
    pub fn choose(&self, x: &Array, y: &Array) -> Result<Array> {
        if self.dtype() != DType::Bool {
            bail!(DtypeMismatch, "where: the condition is {}, wanted bool", self.dtype().name());
        }
        let dtype = promote(x.dtype(), y.dtype());
        let function = match dtype.computed() {
            DType::I32 => "where_i32",
            DType::U32 => "where_u32",
            DType::Bool => "where_bool",
            _ => "where_f32",
        };
        let result = Self::apply("where", function, vec![self.clone(), x.cast(dtype)?, y.cast(dtype)?], dtype)?;
        result.derived("where", &[x, y], &[Some(self)], |pull| {
            let (gradient, condition) = (&pull.gradient, pull.saved(0)?);
            pull.each(&[&|| gradient.kept_where(condition), &|| condition.choose(&gradient.zero()?, gradient)])
        })
    }

    /// The same with numbers, which take the type of the array beside them if that can hold them.
    pub fn choose_scalars(&self, x: Choice<'_>, y: Choice<'_>) -> Result<Array> {
        let beside = match (x, y) {
            (Choice::Array(array), _) | (_, Choice::Array(array)) => array.dtype(),
            _ => DType::Bool,
        };
        let dtype = [x, y].iter().fold(beside, |dtype, choice| match choice {
            Choice::Array(array) => promote(dtype, array.dtype()),
            Choice::Scalar(scalar) => scalar.dtype_beside(dtype),
        });
        let array = |choice: Choice<'_>| match choice {
            Choice::Array(array) => Ok(array.clone()),
            Choice::Scalar(scalar) => self.beside("where", scalar, dtype),
        };
        self.choose(&array(x)?, &array(y)?)
    }

    /// log(1 + e^(beta · x)) / beta, and x where beta · x is above `threshold`.
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Array> {
        let dtype = self.dtype().floating();
        let scaled = self.cast(dtype.computed())?.binary_scalar(Binary::Mul, Scalar::Float(beta), false)?;
        let soft = scaled.unary(Unary::Softplus)?.binary_scalar(Binary::Div, Scalar::Float(beta), false)?;
        let above = scaled.compare_scalar(Compare::Greater, Scalar::Float(threshold))?;
        above.choose(&self.cast(dtype.computed())?, &soft)?.cast(dtype)
    }

    /// Elements below `least` become it, and those above `most`. NaN stays NaN.
    pub fn clamp(&self, least: Option<Scalar>, most: Option<Scalar>) -> Result<Array> {
        if least.is_none() && most.is_none() {
            bail!(InvalidRequest, "clamp: give a least, a most, or both");
        }
        let x = self.detached();
        let raised = match least {
            Some(least) => x.binary_scalar(Binary::Maximum, least, false)?,
            None => x,
        };
        let clamped = match most {
            Some(most) => raised.binary_scalar(Binary::Minimum, most, false)?,
            None => raised,
        };
        clamped.derived("clamp", &[self], &[Some(self)], move |pull| {
            let (gradient, x) = (&pull.gradient, pull.saved(0)?);
            let above = least.map(|least| x.compare_scalar(Compare::GreaterEqual, least)).transpose()?;
            let below = most.map(|most| x.compare_scalar(Compare::LowerEqual, most)).transpose()?;
            let inside = match (above, below) {
                (Some(above), Some(below)) => above.logical(Logical::And, &below)?,
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => bail!(Internal, "clamp has a bound"),
            };
            Ok(vec![Some(gradient.kept_where(&inside)?)])
        })
    }
}

/// The gradient of a function of one element.
fn unary_gradient(kind: Unary, pull: &Pull<Array>) -> Result<Array> {
    let gradient = &pull.gradient;
    match kind {
        Unary::Neg => return gradient.unary(Unary::Neg),
        Unary::Floor => return gradient.zero(),
        _ => {}
    }
    // The result of those that save it, the input of the others.
    let x = pull.saved(0)?;
    let zero = Scalar::Int(0);
    let slope = match kind {
        Unary::Relu => return x.compare_scalar(Compare::LowerEqual, zero)?.choose(&gradient.zero()?, gradient),
        Unary::Abs => {
            let sign = |kind: Compare| x.compare_scalar(kind, zero)?.cast(DType::F32);
            sign(Compare::Greater)?.minus(&sign(Compare::Lower)?)?
        }
        Unary::Cos => x.unary(Unary::Sin)?.unary(Unary::Neg)?,
        Unary::Exp => x.clone(),
        Unary::Gelu => Array::apply("gelu", "gelu_slope_f32", vec![x.clone()], DType::F32)?,
        Unary::GeluTanh => Array::apply("gelu", "gelu_tanh_slope_f32", vec![x.clone()], DType::F32)?,
        Unary::Log => return gradient.over(x),
        Unary::Rsqrt => x.times(x)?.times(x)?.scaled(-0.5)?,
        Unary::Sigmoid => x.times(&x.complement()?)?,
        Unary::Silu => {
            let sigmoid = x.unary(Unary::Sigmoid)?;
            sigmoid.times(&x.times(&sigmoid.complement()?)?.plus_number(1.0)?)?
        }
        Unary::Sin => x.unary(Unary::Cos)?,
        Unary::Softplus => x.unary(Unary::Sigmoid)?,
        Unary::Sqrt => return gradient.over(&x.scaled(2.0)?),
        Unary::Tanh => x.times(x)?.complement()?,
        Unary::Neg | Unary::Floor => bail!(Internal, "a slope that saves nothing"),
    };
    gradient.times(&slope)
}

/// The gradients of a function of two elements, as PyTorch defines them at the edges: half for each of two equal elements that a maximum chooses
/// from, and 0 for an exponent of 0 and for the exponent of 0.
fn binary_gradients(kind: Binary, pull: &Pull<Array>) -> Result<Vec<Option<Array>>> {
    let gradient = &pull.gradient;
    let (a, b) = (|| pull.saved(0), || pull.saved(1));
    let same = || Ok(gradient.clone());
    let zero = Scalar::Int(0);
    match kind {
        Binary::Add => pull.each(&[&same, &same]),
        Binary::Sub => pull.each(&[&same, &|| gradient.unary(Unary::Neg)]),
        Binary::Mul => pull.each(&[&|| gradient.times(b()?), &|| gradient.times(a()?)]),
        Binary::Div => {
            pull.each(&[&|| gradient.over(b()?), &|| gradient.unary(Unary::Neg)?.times(&a()?.over(b()?)?.over(b()?)?)])
        }
        Binary::Pow => {
            let (a, b) = (&a()?.cast(DType::F32)?, &b()?.cast(DType::F32)?);
            let base = || {
                let slope = b.times(&a.binary(Binary::Pow, &b.plus_number(-1.0)?)?)?;
                let is_constant = b.compare_scalar(Compare::Equal, zero)?;
                is_constant.choose(&gradient.zero()?, &gradient.times(&slope)?)
            };
            let exponent = || {
                let slope = a.binary(Binary::Pow, b)?.times(&a.unary(Unary::Log)?)?;
                let is_zero = a.compare_scalar(Compare::Equal, zero)?;
                let is_constant = is_zero.logical(Logical::And, &b.compare_scalar(Compare::GreaterEqual, zero)?)?;
                is_constant.choose(&gradient.zero()?, &gradient.times(&slope)?)
            };
            pull.each(&[&base, &exponent])
        }
        Binary::Maximum | Binary::Minimum => {
            let (a, b) = (a()?, b()?);
            let of = |x: &Array, y: &Array| {
                let loses = if kind == Binary::Maximum { Compare::Lower } else { Compare::Greater };
                let shared = x.compare(Compare::Equal, y)?.choose(&gradient.scaled(0.5)?, gradient)?;
                x.compare(loses, y)?.choose(&gradient.zero()?, &shared)
            };
            pull.each(&[&|| of(a, b), &|| of(b, a)])
        }
    }
}

/// Stores inputs, those with the most steps first, until one kernel may hold them all.
fn keep_small(inputs: &[Array]) -> Result<()> {
    loop {
        let steps: usize = inputs.iter().map(Array::steps).sum();
        let products = products(inputs).len();
        let most = if products == 0 { MOST_INPUTS } else { MOST_BESIDE_PRODUCT };
        if steps < MOST_STEPS && memories(inputs) <= most && products <= 1 {
            return Ok(());
        }
        match inputs.iter().max_by_key(|input| input.steps()) {
            Some(input) if input.steps() > 0 => input.stored_now()?,
            _ => return Ok(()),
        };
    }
}

/// How many memories they read.
fn memories(inputs: &[Array]) -> usize {
    let mut found: Vec<*const Storage> = Vec::new();
    for input in inputs {
        input.each_storage(&mut |storage| {
            let address = Rc::as_ptr(storage);
            if !found.contains(&address) {
                found.push(address);
            }
        });
    }
    found.len()
}

/// The products that they build on, each once.
fn products(inputs: &[Array]) -> Vec<*const Pending> {
    let mut found = Vec::new();
    inputs.iter().for_each(|input| note_products(input, &mut found));
    found
}

fn note_products(array: &Array, found: &mut Vec<*const Pending>) {
    if let State::Pending(pending) = &*array.0.state.borrow() {
        match &**pending {
            Pending::Apply { inputs, .. } => inputs.iter().for_each(|input| note_products(input, found)),
            Pending::Product(_) if !found.contains(&Rc::as_ptr(pending)) => found.push(Rc::as_ptr(pending)),
            Pending::Product(_) => {}
        }
    }
}
