//! A generation that is held to a grammar.
//!
//! Most tokens that a model chooses by itself are allowed, and a mask for each would make the GPU wait for the CPU at each. So there are
//! two ways to go on, and forced tokens beside them:
//!
//! - **Ahead**: steps run ahead of what was read, without masks, as those of other generations do; the grammar sees what comes back.
//!   At the first token that it does not allow, that one and all later ones are dropped, and the session goes back to the place.
//! - **Masked**: the logits are masked by what the grammar allows, and one token is chosen. While its mask is computed, the GPU
//!   already runs the forward pass that gives the logits.
//! - What the grammar leaves no choice about is not chosen: all of it goes through one pass.
//!
//! After a token that was not allowed, one is chosen by a mask, then it goes ahead again. Where that did not last for `SHORT_RUN`
//! tokens, twice as many are chosen by masks as the time before, up to `MOST_MASKED`, and where it did, half as many. This rule looks at the
//! tokens alone and at no clock, so that the same seed gives the same answer.
//!
//! Both ways take the same token where it is chosen from the whole vocabulary: the largest of all logits with their noise, if it is
//! allowed, is the largest of those that are (`sample_partial.rs`), and a step keeps its number, and with it its noise, when it is
//! done again. With top-k, top-p or min-p they can differ: what goes ahead is cut before the grammar has a say, and what is masked after. (llama.cpp
//! samples first, too, and again with the grammar where it must.)

use std::collections::VecDeque;

use web_time::Instant;

use super::constraint::Constraint;
use super::loaded::Inner;
use super::logprobs::{Sampled, sampled};
use super::run_ahead::{RunAhead, SUBMITS_IN_FLIGHT};
use super::session::Session;
use crate::error::Result;
use crate::tensor::ops::MaskLogits;
use crate::tensor::{Readback, Tensor};

/// Ahead for fewer tokens than this was not worth it: what ran too far is lost.
const SHORT_RUN: usize = 8;
const MOST_MASKED: usize = 32;

/// Steps that are under way at once, right after some were lost. More follow as they turn out well.
const LEAST_REACH: usize = 2;

/// What decodes by itself, under a grammar.
pub struct Constrained {
    pub session: Session,
    constraint: Box<dyn Constraint>,
    /// Tokens of the answer so far: the next choice is step `steps`.
    steps: usize,
    /// The last token of the answer, or of the prompt.
    last: u32,
    /// Whether the session has taken it in.
    last_is_in: bool,
    logits: Logits,
    /// Tokens that the grammar forces next.
    forced: Vec<u32>,
    /// Nothing but the end may follow.
    is_complete: bool,
    way: Way,
    /// Each token is chosen by a mask, because log probabilities are wanted.
    stepwise: bool,
    /// Tokens that are chosen by masks after the next one that is not allowed.
    patience: usize,
    run_ahead: RunAhead,
    /// Tokens since steps last ran too far.
    reach: usize,
    /// The mask, kept for its memory.
    allowed: Vec<u32>,
    pub counts: Counts,
}

/// How the answer's tokens came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub forced: usize,
    pub masked: usize,
    /// Steps that ran ahead of a token that the grammar did not allow, with the one that gave it.
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

enum Way {
    /// So many more tokens by masks.
    Masked(usize),
    Ahead {
        /// What was submitted and not read yet, and of how many steps.
        flights: VecDeque<(Readback, usize)>,
        /// Tokens since it goes this way.
        run: usize,
    },
}

impl Constrained {
    /// Goes on after a pass of `session` over `ids` tokens that gave `logits`, the last of which was `last`: the first `steps` tokens
    /// of the answer are among them.
    pub fn new(
        engine: &Inner,
        session: Session,
        mut constraint: Box<dyn Constraint>,
        logits: (Tensor, usize),
        last: u32,
        steps: usize,
    ) -> Result<Self> {
        let state = constraint.advance(&[])?;
        let stepwise = session.logprobs().is_some();
        Ok(Self {
            session,
            constraint,
            steps,
            last,
            last_is_in: true,
            logits: Logits::Pass(logits.0, logits.1),
            forced: state.forced,
            is_complete: state.is_complete,
            // Forced tokens and those that ran ahead too far would have no log probabilities, or others' ones.
            way: Way::Masked(if stepwise { usize::MAX } else { 1 }),
            stepwise,
            patience: 1,
            run_ahead: RunAhead::default(),
            reach: 0,
            allowed: vec![0; MaskLogits::words(engine.decoder()?.config().vocab_size)],
            counts: Counts { forced: steps, ..Counts::default() },
        })
    }

    /// Whether the grammar leaves nothing but the end.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The next tokens of the answer, of at most `longest` in all; none when it is complete.
    pub async fn next_tokens(&mut self, engine: &Inner, longest: usize) -> Result<VecDeque<Sampled>> {
        let mut tokens = VecDeque::new();
        while tokens.is_empty() && !self.is_complete && self.steps < longest {
            let in_flight = matches!(&self.way, Way::Ahead { flights, .. } if !flights.is_empty());
            if !self.forced.is_empty() && !in_flight && !self.stepwise {
                self.take_forced(engine, longest, &mut tokens)?;
            } else if matches!(self.way, Way::Masked(_)) {
                self.choose_masked(engine, longest, &mut tokens).await?;
            } else {
                self.run_ahead(engine, longest, &mut tokens).await?;
            }
        }
        Ok(tokens)
    }

    /// Takes what the grammar forces in by one pass.
    fn take_forced(&mut self, engine: &Inner, longest: usize, tokens: &mut VecDeque<Sampled>) -> Result<()> {
        let mut forced = std::mem::take(&mut self.forced);
        forced.truncate(longest - self.steps);
        let state = self.constraint.advance(&forced)?;
        let Some(&last) = forced.last() else { return Ok(()) };
        if state.taken != forced.len() {
            bail!(Internal, "the grammar took {} of the {} tokens that it forced", state.taken, forced.len());
        }
        let mut ids = if self.last_is_in { Vec::new() } else { vec![self.last] };
        ids.extend(&forced);
        self.steps += forced.len();
        (self.forced, self.is_complete, self.last) = (state.forced, state.is_complete, last);
        if self.is_complete || self.steps >= longest {
            // Nobody asks what follows.
            (self.logits, self.last_is_in) = (Logits::None, false);
        } else {
            let logits = self.session.pass(engine.decoder()?, &ids, self.steps)?;
            engine.context.device().flush();
            (self.logits, self.last_is_in) = (Logits::Pass(logits, ids.len()), true);
        }
        if let Way::Ahead { run, .. } = &mut self.way {
            *run += forced.len();
        }
        self.counts.forced += forced.len();
        tokens.extend(forced.into_iter().map(Sampled::from));
        Ok(())
    }

    /// Chooses one token by a mask.
    async fn choose_masked(&mut self, engine: &Inner, longest: usize, tokens: &mut VecDeque<Sampled>) -> Result<()> {
        let context = &engine.context;
        if matches!(self.logits, Logits::None) {
            self.go_back(engine)?;
            self.session.forward_step(context)?;
            self.session.decoded(self.last);
            (self.logits, self.last_is_in) = (Logits::Step, true);
        }
        // The GPU begins before the mask is there.
        context.device().flush();
        match self.forced.first() {
            // The grammar may admit several ways to cut its text into tokens, and takes this one.
            Some(&forced) => {
                self.allowed.fill(0);
                self.allowed[forced as usize / 32] |= 1 << (forced % 32);
            }
            None => self.constraint.mask(&mut self.allowed)?,
        }
        match std::mem::replace(&mut self.logits, Logits::None) {
            Logits::Pass(logits, ids) => self.session.choose_after(context, &logits, ids, Some(&self.allowed))?,
            _ => self.session.choose_step(context, Some(&self.allowed))?,
        }
        let readback = self.session.read_tokens(context, self.steps, 1)?;
        let goes_on = self.steps + 1 < longest;
        if goes_on {
            // In a submit of its own: the token is on its way here while this runs.
            self.session.forward_step(context)?;
            context.device().flush();
        }
        let bytes = readback.bytes().await?;
        let Some(chosen) = sampled(&mut bytes.iter(), self.steps, 1, self.session.logprobs()).pop() else {
            bail!(Internal, "a read-back of one token gave none")
        };
        let token = chosen.token;
        if token == u32::MAX {
            tokens.push_back(chosen);
            return Ok(());
        }
        let state = self.constraint.advance(&[token])?;
        if state.taken != 1 {
            bail!(
                InvalidRequest,
                "token {} of the answer: of the tokens that the grammar allows the request leaves none; take back what bans or \
                 suppresses tokens, or change the grammar",
                self.steps
            );
        }
        self.steps += 1;
        self.counts.masked += 1;
        (self.forced, self.is_complete) = (state.forced, state.is_complete);
        (self.last, self.last_is_in) = (token, false);
        // A token that ends the answer stops the GPU, and is not taken in.
        if goes_on && !self.is_complete {
            self.session.decoded(token);
            (self.logits, self.last_is_in) = (Logits::Step, true);
        }
        self.way = match self.way {
            Way::Masked(more) if more > 1 => Way::Masked(more - 1),
            _ => {
                self.run_ahead.pause();
                Way::Ahead { flights: VecDeque::new(), run: 0 }
            }
        };
        tokens.push_back(chosen);
        Ok(())
    }

    /// Lets steps follow the last token, wherever the GPU has got to.
    fn go_back(&mut self, engine: &Inner) -> Result<()> {
        if self.last_is_in {
            self.session.truncate(self.session.tokens().len() - 1);
            self.last_is_in = false;
        }
        self.session.resume(&engine.context, self.last, self.steps)
    }

    /// Submits what may be submitted, and takes the oldest of what is under way.
    async fn run_ahead(&mut self, engine: &Inner, longest: usize, tokens: &mut VecDeque<Sampled>) -> Result<()> {
        let mut flights = match &mut self.way {
            Way::Ahead { flights, .. } => std::mem::take(flights),
            Way::Masked(_) => bail!(Internal, "running ahead where masks are wanted"),
        };
        self.submit(engine, longest, &mut flights)?;
        let Some((readback, steps)) = flights.pop_front() else { bail!(Internal, "nothing to run ahead with") };
        let bytes = readback.bytes().await?;
        self.run_ahead.arrived(steps, Instant::now());
        let sampled = words(&bytes);
        let numbers = sampled.iter().position(|token| *token == u32::MAX).unwrap_or(sampled.len());
        let state = self.constraint.advance(&sampled[..numbers])?;
        for &token in &sampled[..state.taken] {
            if !self.last_is_in {
                // The step that gave this one has taken it in.
                self.session.decoded(self.last);
            }
            (self.last, self.last_is_in) = (token, false);
            tokens.push_back(token.into());
        }
        self.steps += state.taken;
        self.reach += state.taken;
        (self.forced, self.is_complete) = (state.forced, state.is_complete);
        let Way::Ahead { flights: under_way, run } = &mut self.way else { return Ok(()) };
        *run += state.taken;
        if self.is_complete || state.taken == sampled.len() {
            *under_way = flights;
        } else if state.taken == numbers {
            tokens.push_back(u32::MAX.into());
        } else {
            self.counts.dropped += sampled.len() - state.taken + flights.iter().map(|(_, steps)| steps).sum::<usize>();
            self.reach = 0;
            // What is forced needs no mask.
            if self.forced.is_empty() {
                self.patience =
                    if *run < SHORT_RUN { (2 * self.patience).min(MOST_MASKED) } else { (self.patience / 2).max(1) };
                self.way = Way::Masked(self.patience);
            }
        }
        Ok(())
    }

    /// Submits steps: few at first, and the more the longer all goes well.
    fn submit(&mut self, engine: &Inner, longest: usize, flights: &mut VecDeque<(Readback, usize)>) -> Result<()> {
        let context = &engine.context;
        while flights.len() < SUBMITS_IN_FLIGHT {
            let under_way: usize = flights.iter().map(|(_, steps)| steps).sum();
            let room = (longest - self.steps).min(LEAST_REACH + self.reach).saturating_sub(under_way);
            let steps = self.run_ahead.steps_per_submit().min(room);
            if steps == 0 {
                break;
            }
            let mut whole = steps;
            if flights.is_empty() {
                match std::mem::replace(&mut self.logits, Logits::None) {
                    Logits::None => self.go_back(engine)?,
                    Logits::Step => {
                        self.session.choose_step(context, None)?;
                        whole -= 1;
                    }
                    Logits::Pass(logits, ids) => {
                        self.session.choose_after(context, &logits, ids, None)?;
                        whole -= 1;
                    }
                }
            }
            for _ in 0..whole {
                self.session.step(context)?;
            }
            flights.push_back((self.session.read_tokens(context, self.steps + under_way, steps)?, steps));
        }
        Ok(())
    }
}

fn words(bytes: &[Vec<u8>]) -> Vec<u32> {
    bytes.iter().flat_map(|bytes| bytemuck::pod_collect_to_vec::<u8, u32>(bytes)).collect()
}
