//! Where an answer stands in its grammar. The proposer masks steps by it (`proposal/mask_automaton.rs`), and the acceptor checks what these
//! steps chose (`accept/grammar.rs`).
//!
//! The CPU asks the grammar about each token, and a page gets a token one to two milliseconds after the GPU has chosen it. So there are two
//! modes. Both choose each token from what the grammar allows at its place, and give the same answer.
//!
//! - **Ahead**, if a step takes less time than its read-back. Steps run before earlier ones are read, each with the mask that is expected
//!   at its place (`mask_automaton`). What comes back is compared with the grammar's real mask there. At the first token with another mask,
//!   this token and all later ones are dropped, and the sequence rolls back to that place. A mask that allowed too much is still right if
//!   the chosen token is allowed, and is the best of all by a score that does not depend on the mask. Steps that are done again keep
//!   their numbers, and so their noise.
//! - **Step by step**, on slower GPUs, where a dropped step costs more than a read-back, or if guesses are mostly wrong. The CPU computes
//!   the mask while the GPU runs the forward pass that gives the logits. Nothing is ever dropped.
//!
//! Forced tokens are not chosen. All of them go through one pass, or, if they are few and steps run ahead, through steps that have a single
//! token to choose from.

use std::cell::RefCell;
use std::rc::Rc;

use web_time::Duration;

use super::constraint::{Constraint, TokenBytes};
use super::known_masks::KnownMasks;
use super::mask_automaton::{MaskAutomaton, MaskMatch, Scratch, TokenSet, Uploaded};
use super::sequence::Sequence;
use crate::error::Result;
use crate::sampler::Masking;
use crate::tensor::Context;

/// If a step takes this long, steps don't run ahead: a dropped one costs too much.
pub const SLOW_STEP: Duration = Duration::from_millis(4);

/// This many forced tokens go through a pass of their own even in the mode Ahead. Fewer don't, since each pass is recorded anew.
const LONG_FORCED: usize = 8;

/// If fewer tokens than this come between wrong guesses, one read-back for each token is faster: a wrong guess costs about two.
const SHORT_RUN: usize = 2;
/// Then this many tokens are chosen step by step, and twice as many each further time, up to a limit.
const FIRST_SINGLE: usize = 4;
const MOST_SINGLE: usize = 128;

/// A grammar at its beginning, and what is known of its masks.
pub struct GrammarCursor {
    pub constraint: Box<dyn Constraint>,
    pub known: KnownMasks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Ahead,
    /// For this number of tokens; None for the whole answer.
    StepByStep(Option<usize>),
}

/// The automaton's state at the last choice, and the token chosen there.
#[derive(Clone, Copy)]
pub enum Cursor {
    Beginning,
    State(u32, u32),
    Unknown,
}

/// Where on the GPU the masks are stored.
#[derive(Clone, Copy)]
pub enum MaskPlace {
    Slot,
    /// The batch, with the number of the sequence.
    Batch(usize),
}

pub struct GrammarState {
    constraint: Box<dyn Constraint>,
    known: KnownMasks,
    pub automaton: Rc<RefCell<MaskAutomaton>>,
    scratch: Scratch,
    vocabulary: Rc<dyn TokenBytes>,
    /// How many automata became full before this one.
    pub full_automata: usize,
    uploaded_to_slot: Uploaded,
    uploaded_to_batch: Uploaded,
    /// Tokens that the grammar forces next.
    pub forced: Vec<u32>,
    /// If it forces none: the tokens that it allows, as bits. Computed on demand.
    allowed: Vec<u32>,
    is_allowed_known: bool,
    pub cursor: Cursor,
    /// The state of the single choice in flight, if the automaton learns from it.
    pub single_state: Option<u32>,
    pub mode: Mode,
    /// The caller set the mode, so it does not change.
    pub mode_is_fixed: bool,
    /// How many tokens are chosen step by step the next time that guesses are mostly wrong.
    next_single: usize,
    /// Tokens since the last wrong guess, and the recent average between wrong guesses in this answer.
    pub run: usize,
    recent_run: usize,
    /// Each token needs log probabilities, so a step chooses each, forced ones too.
    chooses_each: bool,
    /// `Slot::chooses_best_of_all`
    best_of_all: bool,
}

impl GrammarState {
    /// `words` of a mask. The sequence has taken in what the grammar forced at the beginning.
    pub fn new(
        cursor: GrammarCursor,
        words: usize,
        vocabulary: Rc<dyn TokenBytes>,
        sequence: &mut Sequence,
        step: Option<Duration>,
    ) -> Result<Self> {
        let GrammarCursor { mut constraint, known } = cursor;
        let state = constraint.advance(&[])?;
        sequence.is_complete = state.is_complete;
        let is_slow = step.is_some_and(|step| step >= SLOW_STEP);
        Ok(Self {
            constraint,
            automaton: known.automaton(words, &vocabulary),
            known,
            scratch: Scratch::new(words),
            vocabulary,
            full_automata: 0,
            uploaded_to_slot: Uploaded::default(),
            uploaded_to_batch: Uploaded::default(),
            forced: state.forced,
            allowed: vec![0; words],
            is_allowed_known: false,
            cursor: Cursor::Beginning,
            single_state: None,
            mode: if is_slow { Mode::StepByStep(None) } else { Mode::Ahead },
            mode_is_fixed: false,
            next_single: FIRST_SINGLE,
            run: 0,
            recent_run: 2 * SHORT_RUN,
            chooses_each: sequence.params.logprobs.is_some(),
            best_of_all: sequence.slot.chooses_best_of_all(),
        })
    }

    /// If a mode is given, keeps it to the end.
    pub fn in_mode(mut self, mode: Option<Mode>) -> Self {
        if let Some(mode) = mode {
            (self.mode, self.mode_is_fixed) = (mode, true);
        }
        self
    }

    /// The answer is over.
    pub fn end(&self) {
        self.automaton.borrow_mut().ended_after(self.run);
    }

    /// Whether forced tokens go through a pass of their own.
    pub fn is_worth_a_pass(&self) -> Result<bool> {
        if self.chooses_each {
            return Ok(false);
        }
        Ok(match (self.forced.len(), self.mode) {
            (0, _) => false,
            (LONG_FORCED.., _) | (_, Mode::StepByStep(_)) => true,
            // Without looking ahead, each of these tokens would be a wrong guess.
            (_, Mode::Ahead) => self.constraint.fork()?.is_none(),
        })
    }

    /// What the grammar allows next.
    pub fn allowed(&mut self) -> Result<TokenSet<'_>> {
        if self.forced.is_empty() && !self.is_allowed_known {
            self.constraint.mask(&mut self.allowed)?;
            self.is_allowed_known = true;
        }
        Ok(TokenSet::of(&self.forced, &self.allowed))
    }

    /// Lets the grammar take in the answer's next tokens, which it allows.
    pub fn advance(&mut self, tokens: &[u32], sequence: &mut Sequence) -> Result<()> {
        let state = self.constraint.advance(tokens)?;
        if state.taken != tokens.len() {
            bail!(
                InvalidRequest,
                "token {} of the answer: of the tokens that the grammar allows the request leaves none; take back what bans or \
                 suppresses tokens, or change the grammar",
                sequence.steps + state.taken
            );
        }
        sequence.is_complete = state.is_complete;
        (self.forced, self.is_allowed_known) = (state.forced, false);
        Ok(())
    }

    /// The automaton's state for the next choice, learned if it was not known. It may be of another automaton, if this one is full; then
    /// nothing that is in flight can be understood any more.
    pub fn state(&mut self, sequence: &mut Sequence) -> Result<u32> {
        self.allowed()?;
        let expected = TokenSet::of(&self.forced, &self.allowed);
        let place = |automaton: &RefCell<MaskAutomaton>, cursor| {
            let mut automaton = automaton.borrow_mut();
            match cursor {
                Cursor::Beginning => automaton.root(expected),
                Cursor::State(state, token) => automaton.child(state, token, expected, &self.forced),
                Cursor::Unknown => automaton.orphan(expected),
            }
        };
        if let Some(state) = place(&self.automaton, self.cursor) {
            return Ok(state);
        }
        let (words, vocabulary) = (self.allowed.len(), &self.vocabulary);
        let mut next = self.known.after(&self.automaton, words, vocabulary);
        let mut state = place(&next, Cursor::Unknown);
        if state.is_none() {
            // Others have filled that one, too.
            next = self.known.after(&next, words, vocabulary);
            state = place(&next, Cursor::Unknown);
        }
        self.automaton = next;
        self.full_automata += 1;
        (self.uploaded_to_slot, self.uploaded_to_batch) = (Uploaded::default(), Uploaded::default());
        if sequence.in_flight > 0 {
            sequence.roll_back();
        }
        self.cursor = Cursor::Unknown;
        state.ok_or_else(|| err!(Internal, "a new automaton has no room"))
    }

    /// A state for a single choice that the automaton does not learn from.
    pub fn scratch(&mut self) -> Result<u32> {
        self.allowed()?;
        let expected = TokenSet::of(&self.forced, &self.allowed);
        Ok(self.scratch.set(expected))
    }

    /// Looks ahead from a state, over up to `tokens` tokens.
    pub fn explore(&mut self, state: u32, tokens: usize) -> Result<()> {
        self.automaton.borrow_mut().explore(state, &*self.constraint, &self.forced, tokens)
    }

    /// The automaton's state for a choice made in `state`, if the grammar would have chosen `token` there too.
    pub fn state_of(&mut self, token: u32, state: u32, sequence: &mut Sequence) -> Result<Option<u32>> {
        let is_allowed = token == u32::MAX || self.allowed()?.has(token);
        let expected = TokenSet::of(&self.forced, &self.allowed);
        let matches = self.automaton.borrow().compare(state, expected);
        match matches {
            MaskMatch::Same => Ok(Some(state)),
            MaskMatch::Near if self.best_of_all && is_allowed => Ok(Some(state)),
            MaskMatch::Covers if self.best_of_all && is_allowed => self.state(sequence).map(Some),
            _ => Ok(None),
        }
    }

    /// A guess was wrong.
    pub fn missed(&mut self) {
        let run = std::mem::take(&mut self.run);
        self.automaton.borrow_mut().missed_after(run);
        self.recent_run = (self.recent_run + run) / 2;
        if self.recent_run < SHORT_RUN && !self.mode_is_fixed {
            self.mode = Mode::StepByStep(Some(self.next_single));
            self.next_single = (2 * self.next_single).min(MOST_SINGLE);
            self.recent_run = 2 * SHORT_RUN;
        }
    }

    /// A token was chosen step by step.
    pub fn chose_single(&mut self) {
        if let Mode::StepByStep(Some(left)) = self.mode {
            self.mode = if left <= 1 { Mode::Ahead } else { Mode::StepByStep(Some(left - 1)) };
        }
    }

    /// Uploads what the GPU does not have of the automaton.
    pub fn upload(&mut self, context: &Context, masking: &Masking, place: MaskPlace) -> Result<()> {
        let (uploaded, table) = match place {
            MaskPlace::Slot => (&mut self.uploaded_to_slot, 0),
            MaskPlace::Batch(sequence) => (&mut self.uploaded_to_batch, sequence),
        };
        masking.update(context, table, self.automaton.borrow().news(&self.scratch, uploaded))
    }
}
