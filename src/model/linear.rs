//! A product with a matrix of weights, and its bias.

use super::Weights;
use super::matrix::Matrix;
use crate::error::Result;
use crate::tensor::ops::AddRow;
use crate::tensor::{Context, Op, Tensor};

/// A matrix [outputs, inputs], and a bias [outputs].
pub(super) struct Linear {
    pub weight: Matrix,
    pub bias: Option<Tensor>,
}

impl Linear {
    /// From `STEM.weight` and, if it exists, `STEM.bias`.
    pub fn of(weights: &Weights, stem: &str) -> Result<Self> {
        let weight = weights.matrix(&format!("{stem}.weight"))?;
        Ok(Self { weight, bias: weights.optional(&format!("{stem}.bias")).cloned() })
    }

    /// The result of `op` with the bias: the inputs of `op` without the matrix → [n, outputs].
    pub fn run(&self, context: &Context, op: &dyn Op, inputs: &[&Tensor]) -> Result<Tensor> {
        let y = self.weight.multiply(context, op, inputs)?;
        if let Some(bias) = &self.bias {
            context.run(&AddRow, &[&y, bias])?;
        }
        Ok(y)
    }
}
