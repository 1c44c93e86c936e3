//! Steps under a grammar: ahead with guessed masks, or one by one (`grammar.rs` says when).

use std::cell::RefCell;
use std::rc::Rc;

use web_time::Duration;

use super::{Masks, Pace, Proposal, Proposer, forced};
use crate::decode::grammar::{GrammarState, Mode, SLOW_STEP};
use crate::decode::sequence::Sequence;
use crate::error::Result;

/// The least work in flight: about as long as a page waits for a read-back. A wrong guess wastes more than that, so it grows with the
/// number of tokens between wrong guesses.
const LEAST_WORK: Duration = Duration::from_millis(2);
/// The time of a fast step is known only roughly, so this work has at most this many steps.
const MOST_LEAST: usize = 8;

/// How many tokens to look ahead before steps are submitted, and while they run.
const FOLLOWED_BEFORE: usize = 2;
const FOLLOWED_MEANWHILE: usize = 12;

pub struct GrammarProposer {
    pub grammar: Rc<RefCell<GrammarState>>,
}

impl Proposer for GrammarProposer {
    fn propose(&mut self, sequence: &mut Sequence, pace: &Pace) -> Result<Proposal> {
        let grammar = &mut *self.grammar.borrow_mut();
        if sequence.in_flight == 0 {
            let is_slow = pace.run_ahead.step().is_some_and(|step| step >= SLOW_STEP);
            if is_slow && !grammar.mode_is_fixed {
                grammar.mode = Mode::StepByStep(None);
            }
            if grammar.is_worth_a_pass()? {
                return forced::propose(grammar, sequence);
            }
        }
        match grammar.mode {
            Mode::Ahead => self::ahead(grammar, &self.grammar, sequence, pace),
            Mode::StepByStep(_) if sequence.in_flight > 0 => Ok(Proposal::Wait),
            // The GPU begins before the mask is computed.
            Mode::StepByStep(_) if sequence.logits.is_none() => Ok(Proposal::TakeIn),
            Mode::StepByStep(_) => {
                let masks = single(grammar, &self.grammar, sequence)?;
                Ok(Proposal::Single { masks: Some(masks), logits: None, reads_logits: false, takes_in: true })
            }
        }
    }

    fn meanwhile(&mut self) -> Result<()> {
        let grammar = &mut *self.grammar.borrow_mut();
        if grammar.mode == Mode::Ahead { grammar.automaton.borrow_mut().look_on(FOLLOWED_MEANWHILE) } else { Ok(()) }
    }
}

/// Few steps if guesses are often wrong, and more the longer they are right.
fn ahead(
    grammar: &mut GrammarState,
    shared: &Rc<RefCell<GrammarState>>,
    sequence: &mut Sequence,
    pace: &Pace,
) -> Result<Proposal> {
    let state = grammar.state(sequence)?;
    grammar.explore(state, FOLLOWED_BEFORE)?;
    let in_flight = pace.run_ahead.submits_in_flight();
    let least = in_flight.max(pace.run_ahead.steps_of(LEAST_WORK).min(MOST_LEAST));
    let reach = least.max(grammar.run.max(grammar.automaton.borrow().usual_run()) / 2);
    let part = pace.run_ahead.steps_per_submit().min(reach.div_ceil(in_flight));
    let most = part.min(reach.saturating_sub(sequence.in_flight)).min(sequence.steps_left());
    // If the others' steps run anyway, it takes part in them.
    if most == 0 && !pace.is_shared {
        return Ok(Proposal::Wait);
    }
    let enter = (sequence.in_flight == 0).then_some(state);
    Ok(Proposal::Steps { most, masks: Some(Masks { grammar: shared.clone(), enter }) })
}

/// The mask of a single choice.
pub fn single(
    grammar: &mut GrammarState,
    shared: &Rc<RefCell<GrammarState>>,
    sequence: &mut Sequence,
) -> Result<Masks> {
    // If steps will not run ahead, nobody uses what is learned.
    let learns = grammar.mode != Mode::StepByStep(None);
    let state = if learns { grammar.state(sequence)? } else { grammar.scratch()? };
    grammar.single_state = learns.then_some(state);
    Ok(Masks { grammar: shared.clone(), enter: Some(state) })
}
