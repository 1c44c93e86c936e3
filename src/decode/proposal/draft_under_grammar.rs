//! Drafts under a grammar. A draft is verified without masks. The model's most probable tokens are kept as long as the grammar allows them:
//! the best of all tokens is also the best of the allowed ones, if it is among them. If it is not, a mask chooses the next token.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::mask_automaton::GrammarProposer;
use super::{Pace, Proposal, Proposer};
use crate::decode::sequence::Sequence;
use crate::error::Result;

/// The step whose token the grammar refused: no draft is made there again.
pub type Refused = Rc<Cell<Option<usize>>>;

pub struct DraftUnderGrammar {
    pub grammar: GrammarProposer,
    pub drafts: Box<dyn Proposer>,
    pub refused: Refused,
}

impl DraftUnderGrammar {
    /// A draft if there is one, and otherwise what the grammar proposes when it is asked again.
    fn or_by_grammar(&self, later: LocalBoxFuture<'static, Result<Proposal>>, step: usize) -> Proposal {
        let refused = self.refused.clone();
        let proposal = async move {
            Ok(match later.await? {
                Proposal::Steps { .. } => {
                    refused.set(Some(step));
                    Proposal::Wait
                }
                proposal => proposal,
            })
        };
        Proposal::Later(proposal.boxed_local())
    }
}

impl Proposer for DraftUnderGrammar {
    fn propose(&mut self, sequence: &mut Sequence, pace: &Pace) -> Result<Proposal> {
        let may_draft =
            sequence.in_flight == 0 && sequence.logits.is_none() && self.refused.get() != Some(sequence.steps);
        if may_draft && !self.grammar.grammar.borrow().is_worth_a_pass()? {
            match self.drafts.propose(sequence, pace)? {
                // There is no draft, so the grammar says how to go on.
                Proposal::Steps { .. } | Proposal::Wait => {}
                Proposal::Later(later) => return Ok(self.or_by_grammar(later, sequence.steps)),
                proposal => return Ok(proposal),
            }
        }
        // Steps that run ahead would leave no place for a draft.
        match self.grammar.propose(sequence, pace)? {
            Proposal::Steps { .. } if sequence.in_flight > 0 => Ok(Proposal::Wait),
            // A draft begins with the forward pass over the last token.
            Proposal::Single { masks, logits, reads_logits, .. } => {
                Ok(Proposal::Single { masks, logits, reads_logits, takes_in: false })
            }
            proposal => Ok(proposal),
        }
    }

    fn meanwhile(&mut self) -> Result<()> {
        self.grammar.meanwhile()
    }
}
