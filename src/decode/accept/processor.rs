//! Keeps what is chosen from processed logits, and the model's own logits for the next choice.

use super::{Acceptor, Outcome};
use crate::decode::proposal::processor::RawLogits;
use crate::decode::sequence::Sequence;
use crate::error::Result;
use crate::sampler::{Sampled, StepLogprobs};

pub struct AcceptProcessed {
    pub raw: RawLogits,
    /// How many of the most probable tokens get log probabilities, if any. These are the model's own.
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
