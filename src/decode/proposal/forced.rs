//! Forced tokens: the grammar leaves no choice, so one pass takes all of them in.

use super::Proposal;
use crate::decode::grammar::{Cursor, GrammarState, Mode};
use crate::decode::sequence::Sequence;
use crate::error::Result;

/// How many tokens to look ahead before a pass.
const LOOK_AHEAD: usize = 2;

/// Proposes the forced tokens that fit into the answer and the context; the grammar takes them in.
pub fn propose(grammar: &mut GrammarState, sequence: &mut Sequence) -> Result<Proposal> {
    let mut forced = grammar.forced.clone();
    let pending = usize::from(!sequence.last_is_cached);
    let room = sequence.room().saturating_sub(pending);
    // The answer's last token needs no room in the context, since nothing follows it.
    let left = sequence.steps_left();
    forced.truncate(if left <= room { left } else { room });
    let Some(&last) = forced.last() else { return Ok(Proposal::Wait) };
    grammar.cursor = if grammar.mode == Mode::StepByStep(None) {
        Cursor::Unknown
    } else {
        // Later steps start from this state.
        let state = grammar.state(sequence)?;
        grammar.explore(state, LOOK_AHEAD)?;
        let before_last = grammar.automaton.borrow().state_after(state, &forced[..forced.len() - 1]);
        before_last.map_or(Cursor::Unknown, |at| Cursor::State(at, last))
    };
    grammar.advance(&forced, sequence)?;
    Ok(Proposal::Force(forced))
}
