//! Keeps what is chosen of processed logits, and the model's own logits for the next choice.

use super::{Acceptor, Outcome};
use crate::decode::proposal::processor::RawLogits;
use crate::decode::sequence::Sequence;
use crate::error::Result;
use crate::sampler::{Sampled, StepLogprobs};

pub struct AcceptProcessed {
    pub raw: RawLogits,
    /// Of how many of the most probable tokens log probabilities are wanted. They are those of the model.
    pub logprobs: Option<usize>,
    /// Decides about the token.
    pub inner: Box<dyn Acceptor>,
}

impl Acceptor for AcceptProcessed {
    fn accept(&mut self, sequence: &mut Sequence, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Logits(logits) => {
                *self.raw.borrow_mut() = Some(logits);
                Ok(())
            }
            Outcome::Single { sampled, is_taken_in, logits } => {
                let before = self.raw.replace(logits);
                let of_step = |wanted: usize, raw: &Vec<f32>| StepLogprobs::of(raw, sampled.token, wanted);
                let logprobs = self.logprobs.zip(before.as_ref()).map(|(wanted, raw)| of_step(wanted, raw));
                let sampled = Sampled { token: sampled.token, logprobs };
                self.inner.accept(sequence, Outcome::Single { sampled, is_taken_in, logits: None })
            }
            outcome => self.inner.accept(sequence, outcome),
        }
    }
}
