//! How much GPU memory a training takes, told before it begins.

use serde::Serialize;

use super::loss::{Example, piece};
use crate::model::DenseDecoder;

/// Bytes on the GPU besides the model's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct TrainingMemory {
    /// A and B in f32.
    pub parameters: u64,
    /// What AdamW remembers of each number of A and B.
    pub optimizer: u64,
    /// Of A and B, those of an example and the sum of all of a step.
    pub gradients: u64,
    /// The most that one example needs on its way forwards and back.
    pub activations: u64,
}

impl TrainingMemory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.parameters + self.optimizer + self.gradients + self.activations
    }

    /// For `parameters` numbers in A and B, and these examples.
    pub(super) fn of_examples<'e>(
        decoder: &DenseDecoder,
        parameters: u64,
        examples: impl Iterator<Item = &'e Example>,
    ) -> Self {
        let longest = examples.map(|example| example.ids.len()).max().unwrap_or(0);
        let piece = piece(decoder.config.vocab_size);
        Self::of(decoder, parameters, longest as u64, piece as u64)
    }

    /// For `parameters` numbers in A and B, and a longest example of `tokens` tokens, of which `piece` at most go through the head at once.
    fn of(decoder: &DenseDecoder, parameters: u64, tokens: u64, piece: u64) -> Self {
        let config = &decoder.config;
        let n_embd = config.n_embd as u64;
        // The residual stream between layers, and what one layer makes of it: the factors are how many arrays of a size live at once.
        let kept = (config.n_layers as u64 + 1) * tokens * n_embd;
        let of_layer = config.layers.iter().map(|layer| {
            let heads = (config.n_heads * layer.head_dim) as u64;
            let scores = config.n_heads as u64 * tokens * tokens;
            tokens * (8 * n_embd + 6 * heads + 8 * layer.n_ff as u64) + 5 * scores
        });
        let of_layer = of_layer.max().unwrap_or(0);
        let of_head = piece.min(tokens) * (5 * config.vocab_size as u64 + 4 * n_embd);
        Self {
            parameters: 4 * parameters,
            optimizer: 8 * parameters,
            gradients: 8 * parameters,
            activations: 4 * (kept + of_layer.max(of_head)),
        }
    }
}
