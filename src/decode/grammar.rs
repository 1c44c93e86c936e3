//! Where an answer stands in its grammar, for the proposer that masks its steps (`proposal/mask_automaton.rs`) and the acceptor that
//! looks at what they chose (`accept/grammar.rs`).
//!
//! The grammar is asked on the CPU, at each token, and a page hears of a token one to two milliseconds after the GPU has chosen it. So
//! there are two modes. Each token is chosen from what the grammar allows at its place in both, and they give the same answer.
//!
//! - **Ahead**, if a step takes less time than its read-back: steps run ahead of what was read, each with the mask that is expected of
//!   its place (`mask_automaton`). What comes back is compared with the mask that the grammar really has there. At the first token whose mask
//!   was another, that one and all later ones are dropped, and the sequence rolls back to that place. A mask that allowed more is right all the
//!   same if the chosen token is the best of all by a number of each token's own, and is allowed: it would have been the best of
//!   fewer, too. Steps keep their numbers, and with them their noise, when they are done again.
//! - **Step by step** on slower GPUs, where a dropped step costs more than a read-back, and where guesses are mostly wrong: the mask is
//!   computed while the GPU runs the forward pass that gives the logits, and nothing is ever dropped.
//!
//! What the grammar leaves no choice about is not chosen: all of it goes through one pass, or, if it is short and steps run ahead,
//! through steps that have a single token to choose from.

use std::cell::RefCell;
use std::rc::Rc;

use web_time::Duration;

use super::constraint::{Constraint, TokenBytes};
use super::mask_automaton::{KnownMasks, MaskAutomaton, MaskMatch, Scratch, TokenSet, Uploaded};
use super::sequence::Sequence;
use crate::error::Result;
use crate::sampler::Masking;
use crate::tensor::Context;

/// A step that takes this long is not worth the risk.
pub const SLOW_STEP: Duration = Duration::from_millis(4);

/// Forced tokens of this number go through a pass of their own also where steps run ahead: a pass is recorded anew each time.
const LONG_FORCED: usize = 8;

/// If fewer tokens go well between wrong guesses, each of which costs about two read-backs, a read-back for each token takes less.
const SHORT_RUN: usize = 2;
/// Then this many tokens are chosen step by step, and each time twice as many, up to a limit.
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
    /// For a number of tokens, or for good.
    StepByStep(Option<usize>),
}

/// The automaton's state at the last choice, and what was chosen.
#[derive(Clone, Copy)]
pub enum Cursor {
    Beginning,
    State(u32, u32),
    Unknown,
}

/// Where masks are stored on the GPU.
#[derive(Clone, Copy)]
pub enum MaskPlace {
    Slot,
    /// The batch, at the number of the sequence.
    Batch(usize),
}

pub struct GrammarState {
    constraint: Box<dyn Constraint>,
    known: KnownMasks,
    pub automaton: Rc<RefCell<MaskAutomaton>>,
    scratch: Scratch,
    vocabulary: Rc<dyn TokenBytes>,
    /// Automata before this one, which were full.
    pub full_automata: usize,
    uploaded_to_slot: Uploaded,
    uploaded_to_batch: Uploaded,
    /// Tokens that the grammar forces next.
    pub forced: Vec<u32>,
    /// If it forces none, those that it allows, as bits; computed when they are asked for.
    allowed: Vec<u32>,
    is_allowed_known: bool,
    pub cursor: Cursor,
    /// The state of the single choice that is in flight, if it is to be learned from.
    pub single_state: Option<u32>,
    pub mode: Mode,
    /// The mode is given and does not change.
    pub mode_is_fixed: bool,
    /// How many are chosen step by step the next time that guesses are mostly wrong.
    next_single: usize,
    /// Tokens since a guess was wrong, and lately in this answer between one and the next.
    pub run: usize,
    recent_run: usize,
    /// Log probabilities are wanted of each token, so each is chosen by a step.
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

    /// In this mode to the end, if one is given.
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

    /// Whether what the grammar forces goes through a pass of its own.
    pub fn is_worth_a_pass(&self) -> Result<bool> {
        if self.chooses_each {
            return Ok(false);
        }
        Ok(match (self.forced.len(), self.mode) {
            (0, _) => false,
            (LONG_FORCED.., _) | (_, Mode::StepByStep(_)) => true,
            // Without a look ahead, each of its tokens would be guessed wrong.
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

    /// Lets the grammar take tokens in that it allows, the next ones of the answer.
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

    /// A state for a single choice, of which nothing is learned.
    pub fn scratch(&mut self) -> Result<u32> {
        self.allowed()?;
        let expected = TokenSet::of(&self.forced, &self.allowed);
        Ok(self.scratch.set(expected))
    }

    /// Looks ahead from a state, as far as so many tokens.
    pub fn explore(&mut self, state: u32, tokens: usize) -> Result<()> {
        self.automaton.borrow_mut().explore(state, &*self.constraint, &self.forced, tokens)
    }

    /// The automaton's state of a choice that was made in `state`, if `token` is what the grammar would have had there.
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

    /// Tells the GPU what it does not know of the automaton.
    pub fn upload(&mut self, context: &Context, masking: &Masking, place: MaskPlace) -> Result<()> {
        let (uploaded, table) = match place {
            MaskPlace::Slot => (&mut self.uploaded_to_slot, 0),
            MaskPlace::Batch(sequence) => (&mut self.uploaded_to_batch, sequence),
        };
        masking.update(context, table, self.automaton.borrow().news(&self.scratch, uploaded))
    }
}
