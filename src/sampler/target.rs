//! What a choice is written to, and what ends it.

use crate::tensor::Tensor;

/// What ends a sequence on the GPU, so that steps which ran ahead leave the state and the cache as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Tokens that end it. More than `SamplerRow::MAX_STOPS` are seen by the CPU only.
    pub stops: Vec<u32>,
    /// The most tokens.
    pub steps: usize,
}

/// What a choice is written to.
#[derive(Clone)]
pub struct Target {
    /// [rows, 4] u32: position of the next token, step of the generation, whether it has stopped.
    pub state: Tensor,
    /// [rows] u32: the token that the next decode step takes in.
    pub token: Tensor,
    /// [rows, RING] u32: sampled tokens by step.
    pub ring: Tensor,
}
