//! The functions of elements by name, and the numbers beside arrays.

use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::error::Result;

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
            pub(super) fn function(self, dtype: DType) -> &'static str {
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
    pub(super) fn dtype_beside(self, dtype: DType) -> DType {
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
