//! The tensors that a choice writes, and the conditions that end a sequence.

use crate::tensor::Tensor;

/// The end of a sequence on the GPU. Steps that run past it leave the state and the cache as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Tokens that end it. The GPU checks the first `SamplerRow::MAX_STOPS`, the CPU all.
    pub stops: Vec<u32>,
    /// The most tokens of the answer.
    pub steps: usize,
}

/// The tensors that a choice writes.
#[derive(Clone)]
pub struct Target {
    /// [rows, 4] u32: position of the next token, step of the generation, whether it has stopped.
    pub state: Tensor,
    /// [rows] u32: the input of the next decode step.
    pub token: Tensor,
    /// [rows, RING] u32: sampled tokens by step.
    pub ring: Tensor,
}
