//! Functions of elements, which broadcast and promote.

use crate::array::dtype::{DType, promote};
use crate::array::graph::node::{Array, MOST_STEPS, Pending, State, Storage};
use crate::array::layout::broadcast_shapes;
use crate::error::Result;
use crate::tensor::Shape;
use std::rc::Rc;

/// Storage buffers that a kernel reads: with what it writes eight, which are all that every adapter has.
const MOST_INPUTS: usize = 7;
/// The same besides the two that a product reads, which may be bound a second time.
const MOST_BESIDE_PRODUCT: usize = 5;
/// Steps that are taken again for each element of a larger result, rather than kept in memory.
const STEPS_TAKEN_AGAIN: usize = 4;

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $text:literal])* $variant:ident = $title:literal $function:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[doc = $text])* $variant,)* }

        impl $name {
            /// Every one, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that callers use.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// The WGSL function of this type (`functions.wgsl`).
            fn function(self, dtype: DType) -> &'static str {
                match (self, dtype.computed()) {
                    $((Self::$variant, DType::I32) => concat!($function, "_i32"),
                    (Self::$variant, DType::U32) => concat!($function, "_u32"),
                    (Self::$variant, DType::Bool) => concat!($function, "_bool"),
                    (Self::$variant, _) => concat!($function, "_f32"),)*
                }
            }
        }
    };
}

functions! {
    /// A function of one element. Integers become f32, but for `abs`, `neg` and `relu`.
    Unary {
        /// |x|.
        Abs = "abs" "abs",
        /// −x.
        Neg = "neg" "neg",
        /// max(x, 0); NaN stays NaN.
        Relu = "relu" "relu",
        /// The cosine, within 2e-7.
        Cos = "cos" "cos",
        /// e^x.
        Exp = "exp" "exp",
        /// The largest integer that is not larger.
        Floor = "floor" "floor",
        /// x · Φ(x), by the error function (Hendrycks, Gimpel 2016).
        Gelu = "gelu" "gelu",
        /// Its tanh approximation.
        GeluTanh = "gelu" "gelu_tanh",
        /// The natural logarithm; NaN for negative numbers.
        Log = "log" "log",
        /// 1 / √x.
        Rsqrt = "rsqrt" "rsqrt",
        /// 1 / (1 + e^−x).
        Sigmoid = "sigmoid" "sigmoid",
        /// x · sigmoid(x).
        Silu = "silu" "silu",
        /// The sine, within 2e-7.
        Sin = "sin" "sin",
        /// log(1 + e^x).
        Softplus = "softplus" "softplus",
        /// √x; NaN for negative numbers.
        Sqrt = "sqrt" "sqrt",
        /// The hyperbolic tangent.
        Tanh = "tanh" "tanh",
    }
}

functions! {
    /// A function of two elements, in the type that both are promoted to.
    Binary {
        /// x + y; of bools, or.
        Add = "add" "add",
        /// x − y.
        Sub = "sub" "sub",
        /// x · y; of bools, and.
        Mul = "mul" "mul",
        /// x / y; of integers in f32.
        Div = "div" "div",
        /// x^y.
        Pow = "pow" "pow",
        /// The larger; NaN if one of them is.
        Maximum = "maximum" "max",
        /// The smaller; NaN if one of them is.
        Minimum = "minimum" "min",
    }
}

functions! {
    /// A comparison of two elements, in the type that both are promoted to. It gives bool; NaN is equal to nothing.
    Compare {
        /// x = y.
        Equal = "equal" "eq",
        /// x < y.
        Lower = "lower" "lt",
        /// x ≤ y.
        LowerEqual = "lower_equal" "le",
        /// Not x = y.
        NotEqual = "not_equal" "ne",
        /// x > y.
        Greater = "greater" "gt",
        /// x ≥ y.
        GreaterEqual = "greater_equal" "ge",
    }
}

functions! {
    /// A function of two truth values. What is not 0 is true; NaN is.
    Logical {
        /// Both.
        And = "and" "mul",
        /// At least one.
        Or = "or" "add",
        /// One of them.
        Xor = "xor" "xor",
    }
}

/// A number beside an array. It takes the array's type if that can hold it: a float beside integers makes f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// A number without fraction.
    Int(i64),
    /// Any number.
    Float(f64),
    /// A number of a language that has one type for both: an `Int` beside integers if it has no fraction.
    Number(f64),
}

/// What is chosen from.
#[derive(Clone, Copy)]
pub enum Choice<'a> {
    /// Its elements.
    Array(&'a Array),
    /// This number everywhere.
    Scalar(Scalar),
}

/// Whether a number has no fraction and is among those of which doubles hold each one.
fn is_whole(number: f64) -> bool {
    number.trunc() == number && number.abs() < 9_007_199_254_740_992.0
}

impl Scalar {
    /// The type in which it meets an array of `dtype`.
    fn dtype_beside(self, dtype: DType) -> DType {
        match self {
            Scalar::Bool(_) => dtype,
            Scalar::Int(_) if dtype == DType::Bool => DType::I32,
            Scalar::Int(_) => dtype,
            Scalar::Float(_) => dtype.floating(),
            Scalar::Number(number) if is_whole(number) => Scalar::Int(0).dtype_beside(dtype),
            Scalar::Number(_) => dtype.floating(),
        }
    }

    /// The bits of an element of this type; those of an f32 for all floats. An error if the type does not hold it.
    pub(crate) fn bits(self, what: &str, dtype: DType) -> Result<u32> {
        let number = match self {
            Scalar::Bool(value) => i64::from(value) as f64,
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) | Scalar::Number(value) => value,
        };
        Ok(match dtype {
            DType::Bool => u32::from(number != 0.0),
            DType::F32 => (number as f32).to_bits(),
            DType::F16 => half::f16::from_f64(number).to_f32().to_bits(),
            DType::BF16 => half::bf16::from_f64(number).to_f32().to_bits(),
            DType::I32 | DType::U32 => {
                let (least, most) =
                    if dtype == DType::I32 { (-2147483648.0, 2147483647.0) } else { (0.0, 4294967295.0) };
                // Trunc of NaN is NaN, which is in no range.
                let whole = number.trunc();
                if !(least..=most).contains(&whole) {
                    bail!(OutOfRange, "{what}: {number} is no {}", dtype.name());
                }
                whole as i64 as u32
            }
        })
    }
}

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
        Self::apply("clone", function, vec![self.clone()], self.dtype())
    }

    /// The same values in another type; of its own type the array itself, and not a copy. Floats are cut towards zero; beyond an integer type
    /// they become its nearest value, and NaN 0.
    pub fn cast(&self, dtype: DType) -> Result<Array> {
        let (from, to) = (self.dtype(), dtype);
        if from == to {
            return Ok(self.clone());
        }
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
        Self::apply(kind.name(), kind.function(dtype), vec![self.cast(dtype)?], dtype)
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
        Self::apply(kind.name(), kind.function(dtype), inputs, dtype)
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
        Self::apply("where", function, vec![self.clone(), x.cast(dtype)?, y.cast(dtype)?], dtype)
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
        let raised = match least {
            Some(least) => self.binary_scalar(Binary::Maximum, least, false)?,
            None => self.clone(),
        };
        match most {
            Some(most) => raised.binary_scalar(Binary::Minimum, most, false),
            None => Ok(raised),
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
