//! What a grammar leaves no choice about: its tokens go through one pass together.

use super::Proposal;
use crate::decode::grammar::{Cursor, GrammarState, Mode};
use crate::decode::sequence::Sequence;
use crate::error::Result;

/// Tokens that are looked at ahead of a pass.
const LOOK_AHEAD: usize = 2;

/// The forced tokens, as far as answer and context have room; the grammar takes them in.
pub fn propose(grammar: &mut GrammarState, sequence: &mut Sequence) -> Result<Proposal> {
    let mut forced = grammar.forced.clone();
    let pending = usize::from(!sequence.last_is_cached);
    let room = sequence.room().saturating_sub(pending);
    // Of the last token of all nobody asks what follows, so it needs no room.
    let left = sequence.steps_left();
    forced.truncate(if left <= room { left } else { room });
    let Some(&last) = forced.last() else { return Ok(Proposal::Wait) };
    grammar.cursor = if grammar.mode == Mode::StepByStep(None) {
        Cursor::Unknown
    } else {
        // Steps go through it the next time.
        let state = grammar.state(sequence)?;
        grammar.explore(state, LOOK_AHEAD)?;
        let before_last = grammar.automaton.borrow().behind(state, &forced[..forced.len() - 1]);
        before_last.map_or(Cursor::Unknown, |at| Cursor::State(at, last))
    };
    grammar.advance(&forced, sequence)?;
    Ok(Proposal::Force(forced))
}
