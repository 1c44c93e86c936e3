//! Keeps the tokens of a draft that the model itself finds the most probable (Leviathan et al. 2023, Chen et al. 2023; here only greedy),
//! and the one that it chooses after them.

use std::cell::RefCell;
use std::rc::Rc;

use super::all::AcceptAll;
use super::{Acceptor, Outcome};
use crate::decode::proposal::draft::HeldDraftModel;
use crate::decode::sequence::Sequence;
use crate::error::Result;
use crate::sampler::Sampled;

#[derive(Default)]
pub struct GreedyMatch {
    /// The draft model, if drafts come from it. It is told how many tokens were right.
    pub model: Option<Rc<RefCell<HeldDraftModel>>>,
}

impl Acceptor for GreedyMatch {
    fn accept(&mut self, sequence: &mut Sequence, outcome: Outcome) -> Result<()> {
        let Outcome::Draft { greedy, taken_in } = outcome else { return AcceptAll.accept(sequence, outcome) };
        for token in matching(sequence, self.model.as_deref(), &greedy, &taken_in) {
            if sequence.is_over() {
                break;
            }
            sequence.commit(Sampled::from(*token));
        }
        Ok(())
    }
}

/// The tokens to keep: those of the draft that are the most probable ones, and one more. Counts them and tells the draft model.
pub fn matching<'a>(
    sequence: &mut Sequence,
    model: Option<&RefCell<HeldDraftModel>>,
    greedy: &'a [u32],
    taken_in: &[u32],
) -> &'a [u32] {
    let draft = taken_in.get(1..).unwrap_or_default();
    let accepted = draft.iter().zip(greedy).take_while(|(draft, greedy)| draft == greedy).count();
    if let Some(model) = model {
        model.borrow_mut().accepted(draft, accepted);
    }
    sequence.counts.draft_tokens += draft.len();
    sequence.counts.accepted_draft_tokens += accepted;
    &greedy[..greedy.len().min(accepted + 1)]
}
