//! One sequence that decodes: its slot, its settings, and where it stands. Proposers and acceptors see this, and nothing of the scheduler.
//!
//! Invariant: the slot holds the prompt and all accepted tokens of the answer; if `last_is_cached` is false, all but the last.

use std::collections::VecDeque;
use std::rc::Rc;

use super::slot::Slot;
use crate::error::Result;
use crate::model::Transformer;
use crate::sampler::{Ending, Features, Sampled, SamplingParams, TokenRules};
use crate::tensor::{Context, Tensor};

/// A sequence may go on past the end of the context. The first `sinks` tokens of a full context stay, and the newer half of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextShift {
    pub sinks: usize,
}

/// How a sequence samples, and what ends it.
#[derive(Clone)]
pub struct SequenceParams {
    pub sampler: SamplingParams,
    pub rules: Rc<TokenRules>,
    pub ending: Ending,
    pub context_shift: Option<ContextShift>,
    /// If log probabilities come with the tokens: for how many of the most probable ones.
    pub logprobs: Option<usize>,
    /// The sampler chooses among the tokens that a mask allows.
    pub masked: bool,
}

impl SequenceParams {
    /// The kernels that its choices need.
    pub fn features(&self) -> Features {
        let features = Features::of(&self.sampler, &self.rules);
        if self.masked { features.masked() } else { features }
    }
}

/// Where the logits after the last token are.
pub enum NextLogits {
    /// Not computed yet: a forward pass over the last token gives them.
    None,
    /// In the slot's own tensor.
    Step,
    /// In this tensor, [1, vocab_size], from a pass over this number of tokens.
    Pass(Tensor, usize),
}

impl NextLogits {
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// What knows where the next step begins: its token, position and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// The sequence itself; the GPU has to be told.
    Host,
    /// The tensors of the slot.
    Slot,
    /// A row of the batch.
    Row(usize),
}

/// Statistics of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    /// Draft tokens that were verified, and how many of them were right.
    pub draft_tokens: usize,
    pub accepted_draft_tokens: usize,
    /// Tokens that a grammar forced.
    pub forced_tokens: usize,
    /// Masks that were guessed wrong, so that a step was repeated, and steps that were wasted because of that.
    pub missed_masks: usize,
    pub dropped_steps: usize,
}

pub struct Sequence {
    pub slot: Slot,
    pub params: SequenceParams,
    /// How many tokens of the answer were accepted. The next choice is step `steps`.
    pub steps: usize,
    /// The last token of the answer, or of the prompt if there is no answer yet.
    pub last: u32,
    pub last_is_cached: bool,
    pub logits: NextLogits,
    /// Steps that were submitted and not read, and the number of tokens that they take into the cache.
    pub in_flight: usize,
    pub forwards_in_flight: usize,
    pub cursor: Cursor,
    /// Counts how often steps in flight were dropped. Results of an earlier epoch are ignored.
    pub epoch: u32,
    pub counts: SequenceCounts,
    /// The grammar is at its end, or the caller wants no more.
    pub is_complete: bool,
    pub is_cancelled: bool,
    /// Accepted tokens that the caller has not taken.
    pub accepted: VecDeque<Sampled>,
}

impl Sequence {
    /// Begins after a pass over `advance` tokens that gave `logits`. These include the answer's first `steps` tokens.
    pub fn new(
        slot: Slot,
        params: SequenceParams,
        (logits, advance): (Tensor, usize),
        last: u32,
        steps: usize,
    ) -> Self {
        Self {
            slot,
            params,
            steps,
            last,
            last_is_cached: true,
            logits: NextLogits::Pass(logits, advance),
            in_flight: 0,
            forwards_in_flight: 0,
            cursor: Cursor::Slot,
            epoch: 0,
            counts: SequenceCounts { forced_tokens: steps, ..SequenceCounts::default() },
            is_complete: false,
            is_cancelled: false,
            accepted: VecDeque::new(),
        }
    }

    /// The most tokens that the answer may have.
    pub fn longest(&self) -> usize {
        self.params.ending.steps
    }

    /// Whether nothing can follow.
    pub fn is_over(&self) -> bool {
        let has_ended = || self.last == u32::MAX || self.params.ending.stops.contains(&self.last);
        let has_no_room = || self.params.context_shift.is_none() && self.is_full();
        self.is_complete
            || self.is_cancelled
            || self.steps >= self.longest()
            || (self.steps > 0 && has_ended())
            || has_no_room()
    }

    /// How many more steps may be submitted before the answer has its greatest length.
    pub fn steps_left(&self) -> usize {
        self.longest().saturating_sub(self.steps + self.in_flight)
    }

    /// How many more tokens fit into the context.
    pub fn room(&self) -> usize {
        self.slot.capacity().saturating_sub(self.slot.tokens().len() + self.forwards_in_flight)
    }

    /// Whether the context is full and must be shifted before anything follows.
    pub fn is_full(&self) -> bool {
        self.room() == 0 && self.logits.is_none() && self.forwards_in_flight == 0
    }

    /// Whether a forward pass over the next token makes sense: it is not the last one, and there is room for it.
    pub fn goes_on_after_single(&self) -> bool {
        self.steps + 1 < self.longest() && self.room() > 0
    }

    /// Accepts a token that follows the last one.
    pub fn commit(&mut self, sampled: Sampled) {
        let token = sampled.token;
        if !self.last_is_cached {
            // The pass that gave this one has taken the last one into the cache.
            self.slot.decoded(self.last);
        }
        (self.last, self.last_is_cached) = (token, false);
        self.steps += 1;
        self.accepted.push_back(sampled);
    }

    /// The forward pass over the last token has been submitted.
    pub fn took_in_last(&mut self) {
        if !self.last_is_cached {
            self.slot.decoded(self.last);
            self.last_is_cached = true;
        }
    }

    /// Drops what is in flight. The next step follows the last accepted token, however far the GPU has got.
    pub fn roll_back(&mut self) {
        if self.last_is_cached {
            self.slot.truncate(self.slot.tokens().len().saturating_sub(1));
            self.last_is_cached = false;
        }
        self.counts.dropped_steps += self.in_flight;
        (self.in_flight, self.forwards_in_flight) = (0, 0);
        self.logits = NextLogits::None;
        self.cursor = Cursor::Host;
        self.epoch += 1;
    }

    /// Accepts tokens that are certain. One pass takes them in, unless nothing follows them.
    pub fn force(&mut self, transformer: &Transformer, tokens: Vec<u32>) -> Result<()> {
        let Some(&last) = tokens.last() else { return Ok(()) };
        let mut ids = if self.last_is_cached { Vec::new() } else { vec![self.last] };
        ids.extend(&tokens);
        self.steps += tokens.len();
        self.counts.forced_tokens += tokens.len();
        self.last = last;
        self.accepted.extend(tokens.into_iter().map(Sampled::from));
        if self.is_over() {
            (self.logits, self.last_is_cached, self.cursor) = (NextLogits::None, false, Cursor::Host);
            return Ok(());
        }
        let logits = self.slot.pass(transformer, &ids, self.steps)?;
        transformer.context().device().flush();
        (self.logits, self.last_is_cached) = (NextLogits::Pass(logits, ids.len()), true);
        self.cursor = Cursor::Slot;
        Ok(())
    }

    /// Called before steps are submitted: they follow the accepted tokens, and the states can return to where the steps begin.
    pub fn settle(&mut self, transformer: &Transformer) -> Result<()> {
        let in_flight = self.forwards_in_flight;
        if self.slot.settle(transformer, in_flight)? {
            self.cursor = Cursor::Host;
        }
        self.slot.checkpoint(transformer.context(), in_flight)
    }

    /// Steps were submitted: `steps` results come back, and `forwards` tokens are taken in.
    pub fn submitted(&mut self, steps: usize, forwards: usize) {
        self.in_flight += steps;
        self.forwards_in_flight += forwards;
        self.slot.wrote(forwards);
    }

    /// Tells the slot's tensors where the next step begins.
    pub fn place(&mut self, context: &Context) -> Result<()> {
        if self.cursor == Cursor::Host {
            self.slot.resume(context, self.last, self.steps)?;
            self.cursor = Cursor::Slot;
        }
        Ok(())
    }

    /// Drops the older half of a full context. From then on penalties look only at what is left, and count the answer's tokens in it.
    pub fn shift(&mut self, transformer: &Transformer, shift: ContextShift) -> Result<()> {
        let dropped = self.slot.shift(transformer, shift.sinks)?;
        let features = self.params.features();
        if features.adjusts() {
            let answer_start = self.params.rules.answer_start;
            let answer_start = answer_start.saturating_sub(dropped).max(shift.sinks).min(answer_start);
            self.params.rules = Rc::new(TokenRules { answer_start, ..(*self.params.rules).clone() });
            let SequenceParams { sampler, rules, ending, .. } = &self.params;
            self.slot.sampler().configure(transformer.context(), 0, features, sampler, rules, ending)?;
        }
        self.cursor = Cursor::Host;
        Ok(())
    }
}
