//! Arrays of numbers that follow from their places.

use super::functions::{Binary, Compare, Scalar, Unary};
use crate::array::dtype::DType;
use crate::array::graph::node::{Array, State};
use crate::array::layout::{Layout, checked_shape};
use crate::array::library::Library;
use crate::error::Result;
use crate::tensor::{Shape, ops};

/// Beyond this a number is no longer every integer in f32.
const MOST: f64 = 4_294_967_296.0;

impl Library {
    /// One value everywhere.
    pub fn full(&self, dims: &[usize], dtype: DType, value: Scalar) -> Result<Array> {
        self.constant(dims, dtype, value.bits("full", dtype)?)
    }

    /// Numbers from `start` to before `end`, `step` apart.
    pub fn arange(&self, start: f64, end: f64, step: f64, dtype: DType) -> Result<Array> {
        let count = ((end - start) / step).ceil();
        if !(count.is_finite() && step != 0.0) {
            bail!(OutOfRange, "arange: from {start} to {end} by {step} there is no number of numbers");
        }
        if count > MOST / 4.0 {
            bail!(AdapterLimits, "arange: {count} numbers are more than fit 4 GiB");
        }
        self.steps("arange", start, step, count.max(0.0) as usize, dtype)
    }

    /// `count` numbers from `start` to `end`, both included, equally far apart.
    pub fn linspace(&self, start: f64, end: f64, count: usize, dtype: DType) -> Result<Array> {
        if count < 2 {
            return self.steps("linspace", start, 0.0, count, dtype);
        }
        let step = (end - start) / (count - 1) as f64;
        if !dtype.is_float() {
            return self.steps("linspace", start, step, count, dtype);
        }
        // From the nearer end, so that both are exact.
        let places = self.places(&[count], &[1])?;
        let from_start = self.steps("linspace", start, step, count, DType::F32)?;
        let backwards = self.steps("linspace", end, -step, count, DType::F32)?.flip(&[0])?;
        places
            .compare_scalar(Compare::Lower, Scalar::Int((count / 2) as i64))?
            .choose(&from_start, &backwards)?
            .cast(dtype)
    }

    /// start + step · i. Whole numbers of an integer type are exact.
    fn steps(&self, what: &str, start: f64, step: f64, count: usize, dtype: DType) -> Result<Array> {
        let places = self.places(&[count], &[1])?;
        let last = start + step * count.saturating_sub(1) as f64;
        if count > 0 {
            for bound in [start, last] {
                Scalar::Float(bound).bits(what, dtype)?;
            }
        }
        if start.trunc() == start && step.trunc() == step && matches!(dtype, DType::I32 | DType::U32) {
            // Modulo 2^32, like the kernels: what is between the bounds is right, whatever products are on the way.
            let wrapped = |x: f64| Scalar::Int(i64::from(x.rem_euclid(MOST) as u32 as i32));
            let scaled = places.binary_scalar(Binary::Mul, wrapped(step), false)?;
            return scaled.binary_scalar(Binary::Add, wrapped(start), false)?.cast(dtype);
        }
        let scaled = places.cast(DType::F32)?.binary_scalar(Binary::Mul, Scalar::Float(step), false)?;
        scaled.binary_scalar(Binary::Add, Scalar::Float(start), false)?.cast(dtype)
    }

    /// Ones on the diagonal of a matrix, zeros elsewhere.
    pub fn eye(&self, rows: usize, columns: usize, dtype: DType) -> Result<Array> {
        self.places(&[rows, columns], &[1, -1])?.compare_scalar(Compare::Equal, Scalar::Int(0))?.cast(dtype)
    }

    /// Uniform numbers in [0, 1), multiples of 2^-24. One seed gives the same numbers everywhere.
    pub fn rand(&self, dims: &[usize], seed: u64) -> Result<Array> {
        let shape = checked_shape(dims)?;
        if shape.elements() == 0 {
            return self.constant(dims, DType::F32, 0);
        }
        let tensor = self.context().run1(&ops::Random { shape: Shape::from([shape.elements()]), seed }, &[])?;
        self.adopt(&tensor.reshaped(shape)?, DType::F32)
    }

    /// Normally distributed numbers of mean 0 and variance 1 (Box, Muller 1958), the same everywhere but for the last bits.
    pub fn randn(&self, dims: &[usize], seed: u64) -> Result<Array> {
        let shape = checked_shape(dims)?;
        let n = shape.elements();
        let uniform = self.rand(&[2, n], seed)?;
        let (radius, angle) = (uniform.select(0, 0)?, uniform.select(0, 1)?);
        // 1 − u is in (0, 1], whose logarithm is finite.
        let logarithm = radius.binary_scalar(Binary::Sub, Scalar::Float(1.0), true)?.unary(Unary::Log)?;
        let radius = logarithm.binary_scalar(Binary::Mul, Scalar::Float(-2.0), false)?.unary(Unary::Sqrt)?;
        let angle = angle.binary_scalar(Binary::Mul, Scalar::Float(std::f64::consts::TAU), false)?;
        radius.binary(Binary::Mul, &angle.unary(Unary::Cos)?)?.viewed(shape)
    }

    /// i32: the sum of each index times a stride.
    fn places(&self, dims: &[usize], strides: &[isize]) -> Result<Array> {
        let shape = checked_shape(dims)?;
        Ok(Array::new(self, shape, DType::I32, State::Places(Layout::strided(shape, strides, 0))))
    }
}
