//! Sums, means, extremes and truth over dimensions.

use super::functions::{Binary, Compare, Logical, Scalar};
use super::views::checked_dims;
use crate::array::dtype::DType;
use crate::array::graph::compiled::{Finish, Reduction};
use crate::array::graph::node::Array;
use crate::error::Result;
use crate::tensor::Shape;

/// What becomes of the elements along dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum: of bools the number of true ones, as i32.
    Sum,
    /// Their mean, in floats.
    Mean,
    /// Their product.
    Prod,
    /// The largest; NaN if one is.
    Max,
    /// The smallest; NaN if one is.
    Min,
    /// Whether all are true.
    All,
    /// Whether one is true.
    Any,
}

impl Reduce {
    /// Every one, in the order of their numbers.
    pub const ALL: &'static [Self] = &[Self::Sum, Self::Mean, Self::Prod, Self::Max, Self::Min, Self::All, Self::Any];

    /// The name that callers use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::All => "all",
            Self::Any => "any",
        }
    }

    /// The type of the result.
    fn dtype(self, dtype: DType) -> DType {
        match self {
            Self::Sum | Self::Prod if dtype == DType::Bool => DType::I32,
            Self::Mean => dtype.floating(),
            Self::All | Self::Any => DType::Bool,
            _ => dtype,
        }
    }

    /// The function of two elements in a type, and the bits of what no elements give.
    fn reduction(self, dtype: DType) -> Reduction {
        let of = |f32: &'static str, i32: &'static str, u32: &'static str, bool: &'static str| match dtype.computed() {
            DType::I32 => i32,
            DType::U32 => u32,
            DType::Bool => bool,
            _ => f32,
        };
        let start = |f32: f32, i32: i32, u32: u32, bool: u32| match dtype.computed() {
            DType::I32 => i32 as u32,
            DType::U32 => u32,
            DType::Bool => bool,
            _ => f32.to_bits(),
        };
        let (function, start) = match self {
            Self::Sum | Self::Mean | Self::Any => {
                (of("add_f32", "add_i32", "add_u32", "add_bool"), start(0.0, 0, 0, 0))
            }
            Self::Prod | Self::All => (of("mul_f32", "mul_i32", "mul_u32", "mul_bool"), start(1.0, 1, 1, 1)),
            Self::Max => (of("max_f32", "max_i32", "max_u32", "max_bool"), start(f32::NEG_INFINITY, i32::MIN, 0, 0)),
            Self::Min => (of("min_f32", "min_i32", "min_u32", "min_bool"), start(f32::INFINITY, i32::MAX, u32::MAX, 1)),
        };
        Reduction { function, dtype: dtype.computed(), start }
    }
}

impl Array {
    /// Reduces dimensions: those named, or all of them where none is, as in PyTorch. With `keep_dims` they stay, of size 1.
    pub fn reduce(&self, kind: Reduce, dims: Option<&[i64]>, keep_dims: bool) -> Result<Array> {
        let result = self.detached().reduced_over(kind, dims, keep_dims)?;
        if !self.requires_grad() {
            return Ok(result);
        }
        let named = match dims {
            Some(dims) if !dims.is_empty() => checked_dims(kind.name(), dims, self.dims().len())?,
            _ => (0..self.dims().len()).collect(),
        };
        let kept = reduced_shape(self.dims(), &named, true);
        let dims: Vec<i64> = named.iter().map(|dim| *dim as i64).collect();
        let length = named.iter().map(|dim| self.dims()[*dim]).product::<usize>() as f64;
        let saved = match kind {
            Reduce::Prod => [Some(self), None],
            Reduce::Max | Reduce::Min => [Some(self), Some(&result)],
            _ => [None, None],
        };
        result.clone().derived(kind.name(), &[self], &saved, move |pull| {
            let gradient = pull.gradient.viewed(kept)?;
            let gradient = match kind {
                Reduce::Mean => gradient.scaled(1.0 / length)?,
                Reduce::Prod => gradient.times(&product_slope(pull.saved(0)?, &dims)?)?,
                Reduce::Max | Reduce::Min => {
                    // Equal ones share it.
                    let is_it = pull.saved(0)?.compare(Compare::Equal, &pull.saved(1)?.viewed(kept)?)?;
                    let count = is_it.cast(DType::F32)?.over_dims(Reduce::Sum, &dims)?;
                    gradient.over(&count)?.kept_where(&is_it)?
                }
                Reduce::Sum | Reduce::All | Reduce::Any => gradient,
            };
            Ok(vec![Some(gradient)])
        })
    }

    fn reduced_over(&self, kind: Reduce, dims: Option<&[i64]>, keep_dims: bool) -> Result<Array> {
        let rank = self.dims().len();
        let named = match dims {
            Some(dims) if !dims.is_empty() => checked_dims(kind.name(), dims, rank)?,
            _ => (0..rank).collect(),
        };
        let shape = reduced_shape(self.dims(), &named, keep_dims);
        let dtype = kind.dtype(self.dtype());
        let reduction = kind.reduction(dtype);
        let length: usize = named.iter().map(|dim| self.dims()[*dim]).product();
        if length == 0 && matches!(kind, Reduce::Max | Reduce::Min) && shape.elements() > 0 {
            bail!(ShapeMismatch, "{}: {} has no elements to choose from", kind.name(), self.shape());
        }
        if length == 0 || shape.elements() == 0 {
            let bits = if kind == Reduce::Mean { f32::NAN.to_bits() } else { reduction.start };
            return self.library().constant(shape.dims(), dtype, bits);
        }
        let kept: Vec<usize> = (0..rank).filter(|dim| !named.contains(dim)).collect();
        let finish = if kind == Reduce::Mean { Finish::Mean } else { Finish::Keep };
        // Sums of 16-bit floats are taken in f32.
        let reduced = self.cast(dtype.computed())?.reduced(&kept, reduction, finish)?;
        reduced.cast(dtype)?.viewed(shape)
    }

    /// The index of the first largest (or smallest) element along a dimension, or of all elements. NaN counts as both.
    pub fn arg_reduce(&self, largest: bool, dim: Option<i64>, keep_dims: bool) -> Result<Array> {
        let what = if largest { "argmax" } else { "argmin" };
        let rank = self.dims().len();
        let named: Vec<usize> = match dim {
            Some(dim) => checked_dims(what, &[dim], rank)?,
            None => (0..rank).collect(),
        };
        let shape = reduced_shape(self.dims(), &named, keep_dims);
        if self.elements() == 0 {
            if shape.elements() > 0 {
                bail!(ShapeMismatch, "{what}: {} has no elements to choose from", self.shape());
            }
            return self.library().constant(shape.dims(), DType::I32, 0);
        }
        let kept: Vec<usize> = (0..rank).filter(|dim| !named.contains(dim)).collect();
        let array = if self.dtype() == DType::Bool { self.cast(DType::I32)? } else { self.clone() };
        array.arg_reduced(&kept, largest)?.viewed(shape)
    }

    /// Each element by a number.
    pub(crate) fn divided_by(&self, number: usize) -> Result<Array> {
        self.binary_scalar(Binary::Div, Scalar::Float(number as f64), false)
    }

    /// The mean of squared differences from the mean. With `correction` 1, the sum is divided by one less (Bessel).
    pub fn variance(&self, dims: Option<&[i64]>, correction: f64, keep_dims: bool) -> Result<Array> {
        let x = self.detached();
        let mean = x.reduce(Reduce::Mean, dims, true)?;
        let difference = x.minus(&mean)?;
        let count = self.elements().checked_div(mean.elements()).unwrap_or(0) as f64;
        let sum = difference.times(&difference)?.reduce(Reduce::Sum, dims, keep_dims)?;
        let divisor = (count - correction).max(0.0);
        let variance = sum.binary_scalar(Binary::Div, Scalar::Float(divisor), false)?;
        let kept = mean.shape();
        variance.derived("variance", &[self], &[Some(&x), Some(&mean)], move |pull| {
            let difference = pull.saved(0)?.minus(pull.saved(1)?)?;
            Ok(vec![Some(pull.gradient.viewed(kept)?.scaled(2.0 / divisor)?.times(&difference)?)])
        })
    }
}

/// For each element the product of the others along dimensions.
fn product_slope(x: &Array, dims: &[i64]) -> Result<Array> {
    let is_zero = x.compare_scalar(Compare::Equal, Scalar::Int(0))?;
    let one = x.library().full(&[], DType::F32, Scalar::Int(1))?;
    let others = is_zero.choose(&one, x)?;
    let product = others.over_dims(Reduce::Prod, dims)?;
    let zeros = is_zero.cast(DType::F32)?.over_dims(Reduce::Sum, dims)?;
    // With one zero only its own slope is left, and with two none.
    let without = zeros.compare_scalar(Compare::Equal, Scalar::Int(0))?;
    let alone = zeros.compare_scalar(Compare::Equal, Scalar::Int(1))?.logical(Logical::And, &is_zero)?;
    without.choose(&product.over(&others)?, &product.kept_where(&alone)?)
}

fn reduced_shape(dims: &[usize], named: &[usize], keep_dims: bool) -> Shape {
    let kept = dims.iter().enumerate().filter_map(|(index, dim)| match named.contains(&index) {
        true if keep_dims => Some(1),
        true => None,
        false => Some(*dim),
    });
    Shape::new(&kept.collect::<Vec<usize>>())
}
