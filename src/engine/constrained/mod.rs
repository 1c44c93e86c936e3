//! A generation that is held to a grammar.
//!
//! The grammar is asked on the CPU, at each token, and a page hears of a token one to two milliseconds after the GPU has chosen it. So
//! there are two ways to go on; each token is chosen from what the grammar allows at its place in both, and they give the same answer.
//!
//! - **Ahead**, where a step takes less time than its read-back: steps run ahead of what was read, as those of other generations do, each
//!   with the mask that is expected of its place (`automaton`). What comes back is looked at with the mask that the grammar really
//!   has there. At the first token whose mask was another, that one and all later ones are dropped, and the session goes back to the place.
//!   A mask that allowed more is right all the same where the chosen token is the best of all by a number of each token's own,
//!   and is allowed: it would have been the best of fewer, too. Steps keep their numbers, and with them their noise, when they are done again.
//! - **Step by step** on slower GPUs, where a step that is dropped costs more than a read-back, and where guesses are mostly wrong: the
//!   mask is computed while the GPU runs the forward pass that gives the logits, and nothing is ever dropped.
//!
//! What the grammar leaves no choice about is not chosen: all of it goes through one pass, or, where it is short and steps run ahead, through
//! steps that have a single token to choose from.

mod ahead;
mod automaton;
mod compiled;
mod single;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::rc::Rc;

use web_time::Duration;

pub use self::compiled::{CompiledGrammars, Following};

use self::ahead::{FIRST_SINGLE, SHORT_RUN};
use self::automaton::{MaskAutomaton, Uploaded, Wanted};
use super::constraint::Constraint;
use super::loaded::Inner;
use super::run_ahead::RunAhead;
use super::session::Session;
use crate::error::Result;
use crate::sampler::Sampled;
use crate::sampler::ops::MaskLogits;
use crate::tensor::{Readback, Tensor};
use crate::text::tokenizer::Tokenizer;

/// A step that takes so long is not worth to be risked.
const SLOW_STEP: Duration = Duration::from_millis(4);

/// Tokens that are looked at ahead before steps are submitted.
const FOLLOWED_BEFORE: usize = 2;

/// So many forced tokens go through a pass of their own where steps run ahead: a pass is recorded anew each time.
const LONG_FORCED: usize = 8;

/// What decodes by itself, under a grammar.
pub struct Constrained {
    pub session: Session,
    constraint: Box<dyn Constraint>,
    /// The grammar that the automaton is of, if it is to be kept.
    grammar: Option<Rc<str>>,
    automaton: MaskAutomaton,
    tokenizer: Rc<Tokenizer>,
    /// Automata before this one, which were full.
    full_automata: usize,
    uploaded: Uploaded,
    /// Tokens of the answer so far: the next choice is step `steps`.
    steps: usize,
    /// The last token of the answer, or of the prompt.
    last: u32,
    /// Whether the session has taken it in.
    last_is_in: bool,
    logits: Logits,
    /// Tokens that the grammar forces next.
    forced: Vec<u32>,
    /// Where it forces none, those that it allows, as bits; computed when they are asked for.
    allowed: Vec<u32>,
    is_allowed_known: bool,
    /// Nothing but the end may follow.
    is_complete: bool,
    /// The automaton's state at the last choice, and what was chosen.
    from: From,
    way: Way,
    /// Not so but in tests.
    way_is_fixed: bool,
    /// How many are chosen step by step the next time that guesses are mostly wrong.
    next_single: usize,
    flights: VecDeque<Flight>,
    run_ahead: RunAhead,
    /// Tokens since a guess was wrong, and of late in this answer between one and the next.
    run: usize,
    recent_run: usize,
    /// Log probabilities are wanted of each token, so each is chosen by a step.
    wants_logprobs: bool,
    /// `Session::chooses_best_of_all`
    best_of_all: bool,
    pub counts: Counts,
}

/// How the answer's tokens came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub forced: usize,
    /// Masks that were not guessed right, so that a step was done again.
    pub missed: usize,
    /// Steps that ran for nothing because of that.
    pub dropped: usize,
}

/// Logits after the last token.
enum Logits {
    /// Not there, or of later tokens.
    None,
    /// Those of the decode step.
    Step,
    /// Those of a pass over so many tokens.
    Pass(Tensor, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Ahead,
    /// So many tokens, or all, where the GPU is slow.
    StepByStep(Option<usize>),
}

/// Where the automaton comes from.
#[derive(Clone, Copy)]
enum From {
    Beginning,
    State(u32, u32),
    Unknown,
}

/// Steps that were submitted and not read yet.
struct Flight {
    readback: Readback,
    steps: usize,
}

impl Constrained {
    /// Goes on after a pass of `session` over `ids` tokens that gave `logits`, the last of which was `last`: the first `steps` tokens
    /// of the answer are among them.
    pub fn new(
        engine: &Inner,
        session: Session,
        following: Following,
        logits: (Tensor, usize),
        last: u32,
        steps: usize,
    ) -> Result<Self> {
        // The GPU begins before anybody looks at the grammar.
        engine.context.device().flush();
        let Following { mut constraint, grammar } = following;
        let state = constraint.advance(&[])?;
        let words = MaskLogits::words(engine.decoder()?.config().vocab_size);
        let known = grammar.as_ref().and_then(|grammar| engine.compiled.borrow_mut().take_automaton(grammar));
        let mut automaton = known.unwrap_or_else(|| MaskAutomaton::new(words, &engine.tokenizer));
        automaton.forget_changes();
        let pace = engine.structured_step.get();
        let best_of_all = session.chooses_best_of_all()?;
        Ok(Self {
            wants_logprobs: session.logprobs().is_some(),
            best_of_all,
            session,
            constraint,
            grammar,
            automaton,
            tokenizer: engine.tokenizer.clone(),
            full_automata: 0,
            uploaded: Uploaded::default(),
            steps,
            last,
            last_is_in: true,
            logits: Logits::Pass(logits.0, logits.1),
            forced: state.forced,
            allowed: vec![0; words],
            is_allowed_known: false,
            is_complete: state.is_complete,
            from: From::Beginning,
            way: if pace.is_some_and(|step| step >= SLOW_STEP) { Way::StepByStep(None) } else { Way::Ahead },
            way_is_fixed: false,
            next_single: FIRST_SINGLE,
            flights: VecDeque::new(),
            run_ahead: RunAhead::expecting(pace),
            run: 0,
            recent_run: 2 * SHORT_RUN,
            counts: Counts { forced: steps, ..Counts::default() },
        })
    }

    /// Gives the session back, and what was learned about the grammar.
    pub fn end(mut self, engine: &Inner) -> Session {
        self.automaton.ended_after(self.run);
        engine.structured_step.set(self.run_ahead.step().or(engine.structured_step.get()));
        if let Some(grammar) = &self.grammar {
            engine.compiled.borrow_mut().keep_automaton(grammar, self.automaton);
        }
        self.session
    }

    /// Whether the grammar leaves nothing but the end.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The next tokens of the answer, of at most `longest` in all; none when it is complete.
    pub async fn next_tokens(&mut self, engine: &Inner, longest: usize) -> Result<VecDeque<Sampled>> {
        let mut tokens = VecDeque::new();
        while tokens.is_empty() && !self.is_complete && self.steps < longest {
            let is_slow = self.run_ahead.step().is_some_and(|step| step >= SLOW_STEP);
            if is_slow && self.flights.is_empty() && !self.way_is_fixed {
                self.way = Way::StepByStep(None);
            }
            if self.flights.is_empty() && !self.wants_logprobs && self.is_worth_a_pass()? {
                self.take_forced(engine, longest, &mut tokens)?;
            } else if let Way::StepByStep(left) = self.way {
                self.choose(engine, longest, &mut tokens).await?;
                match left {
                    Some(left) if left <= 1 => self.way = Way::Ahead,
                    Some(left) => self.way = Way::StepByStep(Some(left - 1)),
                    None => {}
                }
            } else {
                self.run_ahead(engine, longest, &mut tokens).await?;
            }
        }
        Ok(tokens)
    }

    /// Whether what the grammar forces goes through a pass of its own.
    fn is_worth_a_pass(&self) -> Result<bool> {
        Ok(match (self.forced.len(), self.way) {
            (0, _) => false,
            (LONG_FORCED.., _) | (_, Way::StepByStep(_)) => true,
            // Without a look ahead, each of its tokens would be guessed wrong.
            (_, Way::Ahead) => self.constraint.fork()?.is_none(),
        })
    }

    /// Computes what the grammar allows next, where that was not done yet.
    fn look(&mut self) -> Result<()> {
        if self.forced.is_empty() && !self.is_allowed_known {
            self.constraint.mask(&mut self.allowed)?;
            self.is_allowed_known = true;
        }
        Ok(())
    }

    /// Lets the grammar take tokens in that it allows.
    fn advance(&mut self, tokens: &[u32]) -> Result<()> {
        let state = self.constraint.advance(tokens)?;
        if state.taken != tokens.len() {
            bail!(
                InvalidRequest,
                "token {} of the answer: of the tokens that the grammar allows the request leaves none; take back what bans or \
                 suppresses tokens, or change the grammar",
                self.steps + state.taken
            );
        }
        (self.forced, self.is_complete, self.is_allowed_known) = (state.forced, state.is_complete, false);
        self.steps += tokens.len();
        Ok(())
    }

    /// The automaton's state for the next choice, learned where it was not known. It may be of a new automaton, where the old one was
    /// full; then nothing that is in flight can be understood any more.
    fn state(&mut self) -> Result<u32> {
        self.look()?;
        let wanted = Wanted::of(&self.forced, &self.allowed);
        let state = match self.from {
            From::Beginning => self.automaton.root(wanted),
            From::State(state, token) => self.automaton.child(state, token, wanted, &self.forced),
            From::Unknown => self.automaton.orphan(wanted),
        };
        if let Some(state) = state {
            return Ok(state);
        }
        self.automaton = MaskAutomaton::new(self.allowed.len(), &self.tokenizer);
        let state = self.automaton.orphan(wanted);
        self.full_automata += 1;
        self.uploaded = Uploaded::default();
        self.drop_flights();
        self.from = From::Unknown;
        state.ok_or_else(|| err!(Internal, "a new automaton has no room"))
    }

    fn drop_flights(&mut self) {
        self.counts.dropped += self.flights.iter().map(|flight| flight.steps).sum::<usize>();
        self.flights.clear();
    }

    /// Takes what the grammar forces in by one pass.
    fn take_forced(&mut self, engine: &Inner, longest: usize, tokens: &mut VecDeque<Sampled>) -> Result<()> {
        let mut forced = self.forced.clone();
        forced.truncate(longest - self.steps);
        let Some(&last) = forced.last() else { return Ok(()) };
        self.from = match self.way {
            // Next time steps go through it.
            Way::Ahead | Way::StepByStep(Some(_)) => {
                let state = self.state()?;
                self.automaton.explore(state, &*self.constraint, &self.forced, FOLLOWED_BEFORE)?;
                self.automaton
                    .behind(state, &forced[..forced.len() - 1])
                    .map_or(From::Unknown, |at| From::State(at, last))
            }
            Way::StepByStep(None) => From::Unknown,
        };
        let mut ids = if self.last_is_in { Vec::new() } else { vec![self.last] };
        ids.extend(&forced);
        self.advance(&forced)?;
        self.last = last;
        if self.is_complete || self.steps >= longest {
            // Nobody asks what follows.
            (self.logits, self.last_is_in) = (Logits::None, false);
        } else {
            let logits = self.session.pass(engine.decoder()?, &ids, self.steps)?;
            engine.context.device().flush();
            (self.logits, self.last_is_in) = (Logits::Pass(logits, ids.len()), true);
        }
        self.run_ahead.pause();
        self.counts.forced += forced.len();
        tokens.extend(forced.into_iter().map(Sampled::from));
        Ok(())
    }

    /// Lets the next step choose in a state.
    fn enter(&mut self, engine: &Inner, state: u32) -> Result<()> {
        let masking = self.session.choosing()?.masking()?;
        masking.update(&engine.context, self.automaton.news(&mut self.uploaded))?;
        masking.enter(&engine.context, 0, self.steps, state)
    }

    /// Lets steps follow the last token, wherever the GPU has got to.
    fn go_back(&mut self, engine: &Inner) -> Result<()> {
        if self.last_is_in {
            self.session.truncate(self.session.tokens().len() - 1);
            self.last_is_in = false;
        }
        self.session.resume(&engine.context, self.last, self.steps)
    }
}
