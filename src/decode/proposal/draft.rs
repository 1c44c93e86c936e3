//! Drafts from a second, smaller model (`draft_model.rs`). Its tokens stay on the GPU until the first model has verified them.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::FutureExt;

use super::lookup::{draft_room, plain_steps};
use super::{Pace, Proposal, Proposer};
use crate::decode::draft_model::DraftModel;
use crate::decode::sequence::Sequence;
use crate::decode::verification::Draft;
use crate::error::Result;

/// Holds the draft model while no sequence drafts with it.
pub type DraftModelHome = Rc<RefCell<Option<DraftModel>>>;

/// The draft model, held by one sequence until its end. Other sequences get no drafts meanwhile.
pub struct HeldDraftModel {
    home: DraftModelHome,
    model: Option<DraftModel>,
    /// A draft was begun, and nobody has heard yet that it was computed: the contents of its cache are unknown.
    is_unsure: bool,
}

impl HeldDraftModel {
    pub fn new(home: DraftModelHome) -> Self {
        Self { home, model: None, is_unsure: false }
    }

    /// The first `count` tokens of its draft were right.
    pub fn accepted(&mut self, draft: &[u32], count: usize) {
        if let Some(model) = &mut self.model {
            model.accepted(draft, count);
            self.is_unsure = false;
        }
    }
}

impl Drop for HeldDraftModel {
    fn drop(&mut self) {
        if let Some(mut model) = self.model.take() {
            if self.is_unsure {
                model.forget();
            }
            *self.home.borrow_mut() = Some(model);
        }
    }
}

/// The model while a draft is made. It comes back in any case.
struct Drafting {
    held: Rc<RefCell<HeldDraftModel>>,
    model: Option<DraftModel>,
    /// No draft was begun.
    is_unchanged: bool,
}

impl Drop for Drafting {
    fn drop(&mut self) {
        let mut held = self.held.borrow_mut();
        held.is_unsure |= !self.is_unchanged;
        held.model = self.model.take();
    }
}

pub struct DraftProposer {
    pub held: Rc<RefCell<HeldDraftModel>>,
    /// The most tokens of a draft.
    pub max_tokens: usize,
}

impl Proposer for DraftProposer {
    fn propose(&mut self, sequence: &mut Sequence, pace: &Pace) -> Result<Proposal> {
        if sequence.in_flight > 0 {
            return Ok(Proposal::Wait);
        }
        let count = self.max_tokens.min(draft_room(sequence));
        if !sequence.logits.is_none() || count == 0 {
            return Ok(plain_steps(sequence, pace));
        }
        let model = {
            let mut held = self.held.borrow_mut();
            let model = held.model.take();
            let free = || held.home.borrow_mut().take();
            model.or_else(free)
        };
        let plain = plain_steps(sequence, pace);
        let Some(model) = model else { return Ok(plain) };
        let drafting = Drafting { held: self.held.clone(), model: Some(model), is_unchanged: false };
        let (tokens, last) = (sequence.slot.tokens().to_vec(), sequence.last);
        let draft = async move {
            // Moves the whole struct, so that it comes back however this ends.
            let mut drafting = drafting;
            let drafted = match &mut drafting.model {
                Some(model) => model.draft(&tokens, last, count).await?,
                None => None,
            };
            drafting.is_unchanged = drafted.is_none();
            Ok(match drafted {
                Some(drafted) => Proposal::Draft(Draft::OnGpu(drafted, count)),
                None => plain,
            })
        };
        Ok(Proposal::Later(draft.boxed_local()))
    }
}
