//! Layers that follow the pooling of an embedding model (sentence-transformers' `Dense`; `dense_2`, `dense_3` of llama.cpp's files).

use super::Weights;
use super::arch::FIRST_DENSE;
use super::linear::Linear;
use crate::error::Result;
use crate::tensor::ops::{Epilogue, MatMul, Unary, UnaryKind};
use crate::tensor::{Context, Tensor};

/// The layers, none for most models.
pub struct DenseLayers {
    context: Context,
    layers: Vec<(Linear, Option<UnaryKind>)>,
}

impl DenseLayers {
    /// Of a model's weights; `functions` has what comes after each.
    pub fn new(context: &Context, weights: &Weights, functions: &[Option<UnaryKind>]) -> Result<Self> {
        let layer = |(number, function): (usize, &Option<UnaryKind>)| {
            Ok((Linear::of(weights, &format!("dense_{}", number + FIRST_DENSE))?, *function))
        };
        Ok(Self { context: context.clone(), layers: functions.iter().enumerate().map(layer).collect::<Result<_>>()? })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The vectors of texts [n, inputs] → [n, outputs].
    pub fn run(&self, vectors: Tensor) -> Result<Tensor> {
        let mut x = vectors;
        for (linear, function) in &self.layers {
            // One kernel for any number of texts.
            x = linear.run(&self.context, &MatMul { epilogue: Epilogue::NONE }, &[&x])?;
            if let Some(kind) = *function {
                x = self.context.run1(&Unary { kind }, &[&x])?;
            }
        }
        Ok(x)
    }
}
