//! Short names for what formulas of gradients and of models are written with.

use super::functions::{Binary, Scalar};
use super::reductions::Reduce;
use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::error::Result;

impl Array {
    pub(crate) fn plus(&self, other: &Array) -> Result<Array> {
        self.binary(Binary::Add, other)
    }

    pub(crate) fn minus(&self, other: &Array) -> Result<Array> {
        self.binary(Binary::Sub, other)
    }

    pub(crate) fn times(&self, other: &Array) -> Result<Array> {
        self.binary(Binary::Mul, other)
    }

    pub(crate) fn over(&self, other: &Array) -> Result<Array> {
        self.binary(Binary::Div, other)
    }

    pub(crate) fn scaled(&self, number: f64) -> Result<Array> {
        self.binary_scalar(Binary::Mul, Scalar::Float(number), false)
    }

    pub(crate) fn plus_number(&self, number: f64) -> Result<Array> {
        self.binary_scalar(Binary::Add, Scalar::Float(number), false)
    }

    /// 1 − x.
    pub(super) fn complement(&self) -> Result<Array> {
        self.binary_scalar(Binary::Sub, Scalar::Float(1.0), true)
    }

    /// The sum or mean over dimensions, which stay.
    pub(crate) fn over_dims(&self, kind: Reduce, dims: &[i64]) -> Result<Array> {
        self.reduce(kind, Some(dims), true)
    }

    /// Itself where `condition`, and 0 elsewhere.
    pub(super) fn kept_where(&self, condition: &Array) -> Result<Array> {
        condition.choose(self, &self.zero()?)
    }

    /// 0 without dimensions.
    pub(super) fn zero(&self) -> Result<Array> {
        self.library().constant(&[], self.dtype(), 0)
    }

    /// Zeros, in f32.
    pub(super) fn zeros(&self, dims: &[usize]) -> Result<Array> {
        self.library().constant(dims, DType::F32, 0)
    }
}
