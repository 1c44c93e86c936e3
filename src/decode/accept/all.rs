//! Keeps every token up to the end of the answer.

use super::{Acceptor, Outcome, unexpected};
use crate::decode::sequence::Sequence;
use crate::error::Result;

pub struct AcceptAll;

impl Acceptor for AcceptAll {
    fn accept(&mut self, sequence: &mut Sequence, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Steps { sampled, .. } => {
                for sampled in sampled {
                    // A step past the end wrote no token; the ring still holds an older one.
                    if sequence.is_over() {
                        break;
                    }
                    sequence.commit(sampled);
                }
                Ok(())
            }
            Outcome::Single { sampled, is_taken_in, .. } => {
                sequence.commit(sampled);
                if is_taken_in && !sequence.is_over() {
                    sequence.took_in_last();
                }
                Ok(())
            }
            _ => Err(unexpected("accept_all")),
        }
    }
}
