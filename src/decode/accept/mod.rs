//! Which results of a submit a sequence keeps. An acceptor commits what is right and rolls back the rest.

pub mod all;
pub mod grammar;
pub mod greedy_match;
pub mod processor;

use super::sequence::Sequence;
use crate::error::Result;
use crate::sampler::Sampled;

/// What came back from one submit.
pub enum Outcome {
    /// The tokens of steps; for masked steps also the states of the mask automaton in which they were chosen.
    Steps { sampled: Vec<Sampled>, states: Vec<u32> },
    /// The logits that follow the last token, [vocab_size].
    Logits(Vec<f32>),
    /// A token; whether the forward pass over it was submitted too; the logits after it if they were read.
    Single { sampled: Sampled, is_taken_in: bool, logits: Option<Vec<f32>> },
    /// From a pass over the last token and a draft: what the model chooses after each, and the tokens of the pass.
    Draft { greedy: Vec<u32>, taken_in: Vec<u32> },
}

/// Accepts the right part of a submit's results.
pub trait Acceptor {
    fn accept(&mut self, sequence: &mut Sequence, outcome: Outcome) -> Result<()>;
}

/// The error for a result that the proposer never asks for.
fn unexpected(acceptor: &str) -> crate::Error {
    err!(Internal, "{acceptor} got a result of another kind than was asked for")
}
