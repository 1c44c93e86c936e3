//! Keeps tokens as long as the masks they were chosen under are the grammar's.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Acceptor, Outcome, unexpected};
use crate::decode::accept::greedy_match::matching;
use crate::decode::grammar::{Cursor, GrammarState};
use crate::decode::proposal::draft::HeldDraftModel;
use crate::decode::proposal::draft_under_grammar::Refused;
use crate::decode::sequence::Sequence;
use crate::error::Result;
use crate::sampler::Sampled;

pub struct AcceptGrammar {
    pub grammar: Rc<RefCell<GrammarState>>,
    /// The step at which the grammar refused a token of a draft.
    pub refused: Refused,
    /// The draft model, if drafts come from it.
    pub model: Option<Rc<RefCell<HeldDraftModel>>>,
}

impl Acceptor for AcceptGrammar {
    fn accept(&mut self, sequence: &mut Sequence, outcome: Outcome) -> Result<()> {
        let grammar = &mut *self.grammar.borrow_mut();
        match outcome {
            Outcome::Steps { sampled, states } => steps(grammar, sequence, sampled, &states),
            Outcome::Single { sampled, is_taken_in, .. } => single(grammar, sequence, sampled, is_taken_in),
            Outcome::Draft { greedy, taken_in } => {
                let kept = matching(sequence, self.model.as_deref(), &greedy, &taken_in);
                if !draft(grammar, sequence, kept)? {
                    self.refused.set(Some(sequence.steps));
                }
                Ok(())
            }
            _ => Err(unexpected("accept_grammar")),
        }
    }
}

fn steps(grammar: &mut GrammarState, sequence: &mut Sequence, sampled: Vec<Sampled>, states: &[u32]) -> Result<()> {
    let (steps, full_automata) = (sampled.len(), grammar.full_automata);
    for (at, (sampled, state)) in sampled.into_iter().zip(states).enumerate() {
        if sequence.is_over() {
            break;
        }
        let token = sampled.token;
        let Some(state) = grammar.state_of(token, *state, sequence)? else {
            sequence.counts.missed_masks += 1;
            sequence.counts.dropped_steps += steps - at;
            sequence.roll_back();
            grammar.missed();
            break;
        };
        if token == u32::MAX {
            sequence.commit(sampled);
            break;
        }
        sequence.counts.forced_tokens += usize::from(!grammar.forced.is_empty());
        grammar.advance(&[token], sequence)?;
        sequence.commit(sampled);
        grammar.cursor = Cursor::State(state, token);
        grammar.run += 1;
        if grammar.full_automata != full_automata && !sequence.is_over() {
            // The states that follow are of an automaton that was replaced.
            sequence.counts.dropped_steps += steps - at - 1;
            sequence.roll_back();
            break;
        }
    }
    Ok(())
}

fn single(grammar: &mut GrammarState, sequence: &mut Sequence, sampled: Sampled, is_taken_in: bool) -> Result<()> {
    let (token, state) = (sampled.token, grammar.single_state.take());
    if token == u32::MAX {
        sequence.commit(sampled);
        return Ok(());
    }
    sequence.counts.forced_tokens += usize::from(!grammar.forced.is_empty());
    grammar.advance(&[token], sequence)?;
    sequence.commit(sampled);
    grammar.cursor = state.map_or(Cursor::Unknown, |state| Cursor::State(state, token));
    grammar.chose_single();
    // A token that ends the answer stops the GPU and is not taken in.
    if is_taken_in && !sequence.is_over() {
        sequence.took_in_last();
    }
    Ok(())
}

/// Keeps the most probable tokens as long as the grammar allows them. Returns whether it allowed all.
fn draft(grammar: &mut GrammarState, sequence: &mut Sequence, tokens: &[u32]) -> Result<bool> {
    for &token in tokens {
        if sequence.is_over() {
            break;
        }
        if !grammar.allowed()?.has(token) {
            return Ok(false);
        }
        let state = grammar.state(sequence)?;
        sequence.counts.forced_tokens += usize::from(!grammar.forced.is_empty());
        grammar.advance(&[token], sequence)?;
        sequence.commit(Sampled::from(token));
        grammar.cursor = Cursor::State(state, token);
    }
    Ok(true)
}
