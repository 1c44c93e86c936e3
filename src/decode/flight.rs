//! Submits whose results have not been read.

use futures_util::future::LocalBoxFuture;

use super::accept::Outcome;
use crate::error::Result;
use crate::sampler::sampled;

/// A submit, whose results come back together.
pub struct Flight {
    pub bytes: LocalBoxFuture<'static, Result<Vec<Vec<u8>>>>,
    pub parts: Vec<Part>,
    /// The number of the model's steps, one after the other; 0 if the flight's time says nothing about them.
    pub steps: usize,
    pub is_waited_for: bool,
}

impl Flight {
    /// Whether it holds a pass over a draft, and nothing else.
    pub fn verifies_draft(&self) -> bool {
        self.parts.iter().all(|part| matches!(part.kind, PartKind::Draft))
    }
}

/// The results of one sequence.
pub struct Part {
    pub id: u64,
    pub epoch: u32,
    pub kind: PartKind,
    /// How many tokens it took into the cache.
    pub forwards: usize,
    /// How many of the flight's read-backs belong to it.
    pub pieces: usize,
}

pub enum PartKind {
    Steps { first: usize, steps: usize, logprobs: Option<usize> },
    Single { step: usize, logprobs: Option<usize>, is_taken_in: bool, reads_logits: bool },
    Logits,
    Draft,
}

impl Part {
    /// What came back, read from the pieces that belong to it.
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
    /// Steps that choose a token, or a result that counts as one until it has come back.
    pub fn steps(&self) -> usize {
        match self {
            Self::Steps { steps, .. } => *steps,
            Self::Single { .. } | Self::Logits | Self::Draft => 1,
        }
    }
}
