//! What was submitted, on its way back.

use futures_util::future::LocalBoxFuture;

use super::accept::Outcome;
use crate::error::Result;
use crate::sampler::sampled;

/// What was submitted, and comes back together.
pub struct Flight {
    pub bytes: LocalBoxFuture<'static, Result<Vec<Vec<u8>>>>,
    pub parts: Vec<Part>,
    /// Steps of the model, one after the other; 0 if the time it takes says nothing about them.
    pub steps: usize,
    pub is_waited_for: bool,
}

/// What comes back for one sequence.
pub struct Part {
    pub id: u64,
    pub epoch: u32,
    pub kind: PartKind,
    /// Tokens that it took into the cache.
    pub forwards: usize,
    /// Read-backs of the flight that are its own.
    pub pieces: usize,
}

pub enum PartKind {
    Steps { first: usize, steps: usize, logprobs: Option<usize> },
    Single { step: usize, logprobs: Option<usize>, is_taken_in: bool, reads_logits: bool },
    Logits,
    Draft,
}

impl Part {
    /// What came back, from the pieces that are its own.
    pub fn outcome<'a>(&self, pieces: &mut impl Iterator<Item = &'a Vec<u8>>) -> Result<Outcome> {
        let parsed = match self.kind {
            PartKind::Steps { first, steps, logprobs, .. } => {
                let sampled = sampled(pieces, first, steps, logprobs);
                Some(Outcome::Steps { sampled, states: pieces.flat_map(|piece| words(piece)).collect() })
            }
            PartKind::Single { step, logprobs, is_taken_in, reads_logits } => {
                sampled(pieces, step, 1, logprobs).pop().map(|sampled| {
                    let logits = pieces.next().filter(|_| reads_logits).map(|bytes| numbers(bytes));
                    Outcome::Single { sampled, is_taken_in, logits }
                })
            }
            PartKind::Logits => pieces.next().map(|bytes| Outcome::Logits(numbers(bytes))),
            PartKind::Draft => pieces
                .next()
                .zip(pieces.next())
                .map(|(greedy, taken_in)| Outcome::Draft { greedy: words(greedy), taken_in: words(taken_in) }),
        };
        parsed.ok_or_else(|| err!(Internal, "what was submitted for a sequence came back without its bytes"))
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(bytes)
}

impl PartKind {
    /// Steps that choose a token, or what stands for one until it has come back.
    pub fn steps(&self) -> usize {
        match self {
            Self::Steps { steps, .. } => *steps,
            Self::Single { .. } | Self::Logits | Self::Draft => 1,
        }
    }
}
