//! Plans that must be recorded before a submit. Recording waits for the compiler, and nothing is submitted meanwhile.

use std::rc::Rc;

use futures_util::FutureExt;

use super::batch::StepShape;
use super::proposal::Proposal;
use super::scheduler::{Prepared, ProposalState, Scheduler};
use super::sequence::Cursor;
use super::wishes::Wishes;
use crate::error::Result;
use crate::model::Transformer;

impl Scheduler {
    /// Begins to record what these steps need, if that was not done yet.
    pub(super) fn prepare_batch(&mut self, shape: Option<StepShape>, steps: usize) -> bool {
        let Some(shape) = shape else { return false };
        let later = StepShape { rows: shape.sampled, ..shape };
        let shapes = if steps > 1 && shape.sampled > 1 { vec![shape, later] } else { vec![shape] };
        let missing = |shape: &StepShape| self.batch.as_ref().is_some_and(|batch| !batch.is_prepared(*shape));
        let Some(missing) = shapes.into_iter().find(missing) else { return false };
        let Some(mut batch) = self.batch.take() else { return false };
        let preparing = async move {
            let result = batch.prepare(missing).await;
            Prepared::Batch(Box::new(batch), result)
        };
        self.preparing = Some(preparing.boxed_local());
        true
    }

    /// Begins to record passes that verify drafts of these lengths, if that was not done yet.
    pub(super) fn prepare_drafts(&mut self, transformer: &Rc<Transformer>, wishes: &Wishes) -> Result<bool> {
        for &index in &wishes.drafts {
            let member = &mut self.members[index];
            let ProposalState::Ready(Proposal::Draft(draft)) = &member.proposal else { continue };
            if member.sequence.slot.can_verify(draft) {
                continue;
            }
            let draft = draft.clone();
            let (mut verification, state, states) = member.sequence.slot.lend_verification(transformer.context())?;
            // The recording uses the slot's tensors.
            member.sequence.cursor = Cursor::Host;
            let (id, transformer) = (member.id, transformer.clone());
            let preparing = async move {
                let result = verification.prepare(&transformer, &state, &states, &draft).await;
                Prepared::Verification(id, Box::new(verification), result)
            };
            self.preparing = Some(preparing.boxed_local());
            return Ok(true);
        }
        Ok(false)
    }
}
