//! Plain decoding: steps run ahead of what was read, since no result can change them.

use super::{Pace, Proposal, Proposer};
use crate::decode::sequence::Sequence;
use crate::error::Result;

pub struct RunAheadProposer;

impl Proposer for RunAheadProposer {
    fn propose(&mut self, sequence: &mut Sequence, _: &Pace) -> Result<Proposal> {
        Ok(match sequence.steps_left() {
            0 => Proposal::Wait,
            most => Proposal::Steps { most, masks: None },
        })
    }
}
