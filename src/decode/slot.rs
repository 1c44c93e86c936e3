//! A sequence's part of what the layers keep, the tensors that kernels read and advance, and the recorded step of one token (llama.cpp's
//! server calls it a slot).
//!
//! Invariant: `tokens` are exactly the tokens that the layers' states have seen from position 0 on; after a context shift without those
//! that were dropped. Steps that ran ahead of the text's end have written more (`written`). Of keys and values that is overwritten before it is
//! read, and a recurrent state is rolled back before anything follows (`settle`). If the end is a token of the model's, they write
//! nothing: the kernel that chooses it sets a flag in the state, and the others leave all states as they are.

use std::rc::Rc;

use super::verification::{Draft, Verification};
use crate::error::Result;
use crate::model::state::{self, SequenceState, Shift};
use crate::model::{LayerStates, Logits, Transformer};
use crate::sampler::{
    Ending, LogprobPlans, LogprobRings, RING, Sampler, Sampling, SamplingParams, Target, TokenRules, ring_ranges,
};
use crate::tensor::{Context, Desc, HostTensor, Plan, Tensor};

pub struct Slot {
    /// Its number in the cache of all.
    pub sequence: usize,
    /// What the layers keep: this sequence's part.
    states: LayerStates,
    capacity: usize,
    /// [4] u32: position of the next token, step of the generation, whether it has stopped, number of the sequence in the cache.
    state: Tensor,
    /// [1] u32: what the next decode step takes in.
    token: Tensor,
    /// [RING] u32: sampled tokens by step.
    ring: Tensor,
    step: Step,
    verification: Verification,
    /// Log probabilities come with the tokens: of how many of the most probable ones.
    logprobs: Option<usize>,
    tokens: Vec<u32>,
    /// Tokens that passes have been submitted for, from position 0 on: `tokens`, and what ran ahead of them.
    written: usize,
    /// So many of them were taken in by passes over several tokens, as the tokens of a prompt are. Kernels for one token round otherwise.
    prefill_computed_len: usize,
    /// After a context shift, so many of them are as a pass over them alone would leave them: the others have seen tokens that were
    /// dropped.
    unshifted: Option<usize>,
    shifts: ContextShifts,
}

/// What the prompt of one sequence left for others: they take it over instead of computing it themselves.
#[derive(Clone)]
pub struct PrefillResult {
    /// The number of its sequence in the cache of all.
    pub sequence: usize,
    /// After the prompt, [1, vocab_size].
    pub logits: Tensor,
    /// Tokens of the pass that gave them.
    pub advance: usize,
    /// `Slot::prefill_computed_len`
    pub prefill_computed_len: usize,
}

/// What context shifts of one generation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextShifts {
    pub count: usize,
    pub dropped_tokens: usize,
}

/// The decode step of one token.
struct Step {
    /// [1, vocab_size], which `forward` gives.
    logits: Tensor,
    forward: Plan,
    sampling: Sampling,
    /// Recorded when log probabilities are first asked for.
    logprobs: Option<(LogprobRings, LogprobPlans)>,
}

impl Slot {
    /// `states` has room for `capacity` tokens. Compiles all kernels and records the decode step.
    pub async fn new(transformer: &Transformer, states: LayerStates, capacity: usize, sequence: usize) -> Result<Self> {
        let context = transformer.context();
        let state = context.tensor(&HostTensor::u32(&[4], &[0, 0, 0, sequence as u32]))?;
        let token = context.zeros(Desc::u32(&[1]))?;
        let ring = context.zeros(Desc::u32(&[RING]))?;
        let (logits, forward) = context.plan(|| transformer.forward(&token, &state, &states, Logits::Last)).await?;
        let target = Target { state: state.clone(), token: token.clone(), ring: ring.clone() };
        let sampling = Sampling::new(context, logits.clone(), target, capacity).await?;
        // The kernels of a prompt do not depend on how many tokens it has, as long as they are several.
        let prompt = context.empty(Desc::u32(&[2]), "prompt")?;
        context.prepare(|| transformer.forward(&prompt, &state, &states, Logits::Last)).await?;
        context.device().sync().await?;
        Ok(Self {
            sequence,
            states,
            capacity,
            state,
            token,
            ring,
            step: Step { logits, forward, sampling, logprobs: None },
            verification: Verification::default(),
            logprobs: None,
            tokens: Vec::new(),
            written: 0,
            prefill_computed_len: 0,
            unshifted: None,
            shifts: ContextShifts::default(),
        })
    }

    fn target(&self) -> Target {
        Target { state: self.state.clone(), token: self.token.clone(), ring: self.ring.clone() }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Of the tokens, those that a prompt with the same beginning needs not be taken in for.
    pub fn reusable(&self) -> &[u32] {
        &self.tokens[..self.unshifted.unwrap_or(usize::MAX).min(self.tokens.len())]
    }

    /// Forgets what the states hold.
    pub fn forget(&mut self) {
        self.truncate(0);
    }

    /// Keeps only the first `length` tokens. The states follow with the next pass.
    pub fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.unshifted = self.unshifted.filter(|unshifted| *unshifted < length);
        self.prefill_computed_len = self.prefill_computed_len.min(length);
    }

    /// Of the first `length` tokens, those that the states can return to without another pass.
    pub fn recoverable(&self, length: usize) -> usize {
        if length == self.tokens.len() && self.written == length { length } else { self.states.recoverable(length) }
    }

    /// Steps were submitted that take in so many tokens.
    pub fn wrote(&mut self, tokens: usize) {
        self.written += tokens;
    }

    /// Comes before a pass is submitted while passes over `in_flight` tokens are: makes the states those of `tokens` again if passes ran
    /// ahead of them that count no more.
    /// Returns whether that was so: the tensors that say where the next step stands have to be written then.
    pub fn settle(&mut self, transformer: &Transformer, in_flight: usize) -> Result<bool> {
        let length = self.tokens.len();
        if self.written == length + in_flight {
            return Ok(false);
        }
        let context = transformer.context();
        let at = self.states.recoverable(length);
        self.states.roll_back(context, at)?;
        self.written = at;
        if at < length {
            // The passes before were over the same tokens, but in other parts.
            self.prefill_computed_len = self.prefill_computed_len.min(at);
            self.place_at(context, at, 0)?;
            let ids = &self.tokens[at..];
            let tokens = context.tensor(&HostTensor::u32(&[ids.len()], ids))?;
            transformer.append(&tokens, &self.state, &self.states)?;
            self.written = length;
        }
        Ok(true)
    }

    /// Lets the states return to where they stand, with `in_flight` tokens on the way.
    pub fn checkpoint(&self, context: &Context, in_flight: usize) -> Result<()> {
        self.states.checkpoint(context, self.tokens.len() + in_flight)
    }

    /// How many tokens from the first on have keys and values that another pass over them, in whatever parts, would give to the bit.
    pub fn prefill_computed_len(&self) -> usize {
        self.prefill_computed_len
    }

    /// Makes room in a full context: the first `sinks` tokens stay, and of the rest the newer half. To be called while nothing is in
    /// flight, and to be followed by `resume`. Returns how many tokens behind the sinks were dropped.
    pub fn shift(&mut self, transformer: &Transformer, sinks: usize) -> Result<usize> {
        let length = self.tokens.len();
        let dropped = (length.saturating_sub(sinks) / 2).max(1);
        self.settle(transformer, 0)?;
        transformer.shift(&self.states, Shift { sinks, dropped, length })?;
        self.tokens.drain(sinks..sinks + dropped);
        self.written -= dropped;
        self.unshifted = Some(self.unshifted.unwrap_or(usize::MAX).min(sinks));
        self.prefill_computed_len = self.prefill_computed_len.min(sinks);
        self.shifts.count += 1;
        self.shifts.dropped_tokens += dropped;
        Ok(dropped)
    }

    /// Since the session was configured.
    pub fn shifts(&self) -> ContextShifts {
        self.shifts
    }

    /// A token that a decode step has taken into the cache.
    pub fn decoded(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Sets what sampling depends on for one generation, and what ends it.
    pub async fn configure(
        &mut self,
        transformer: &Transformer,
        settings: &SamplingParams,
        rules: &Rc<TokenRules>,
        ending: &Ending,
    ) -> Result<()> {
        let context = transformer.context();
        self.shifts = ContextShifts::default();
        self.step.sampling.configure(context, settings, rules, ending).await
    }

    /// Lets log probabilities come with the tokens of the next generation: of so many of the most probable ones besides the chosen.
    pub async fn configure_logprobs(&mut self, context: &Context, wanted: Option<usize>) -> Result<()> {
        self.logprobs = wanted;
        let Some(wanted) = wanted else { return Ok(()) };
        let rings = match self.step.logprobs.take() {
            Some(rings) => rings,
            None => {
                let rings = LogprobRings::new(context, 1)?;
                let plans = LogprobPlans::new(context, &rings, &self.step.logits, &self.target()).await?;
                (rings, plans)
            }
        };
        self.step.logprobs.insert(rings).0.configure(context, &[wanted as u32])
    }

    /// Of how many of the most probable tokens log probabilities come with the tokens.
    pub fn logprobs(&self) -> Option<usize> {
        self.logprobs
    }

    /// What a pass over `ids` takes, appended to what the states hold: its tokens. The slot counts them as taken in.
    fn begin_pass(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<Tensor> {
        self.check(transformer, ids)?;
        self.settle(transformer, 0)?;
        let context = transformer.context();
        self.place(context, 0)?;
        let tokens = context.tensor(&HostTensor::u32(&[ids.len()], ids))?;
        self.tokens.extend_from_slice(ids);
        self.written += ids.len();
        Ok(tokens)
    }

    /// As `begin_pass`, by the kernels of prompts.
    fn begin_prompt_pass(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<Tensor> {
        let before = self.tokens.len();
        let tokens = self.begin_pass(transformer, ids)?;
        if ids.len() > 1 && self.prefill_computed_len == before {
            self.prefill_computed_len += ids.len();
        }
        Ok(tokens)
    }

    /// The logits after each of `ids`, [ids, vocab_size].
    pub fn forward(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<Tensor> {
        // A small batch takes kernels of its own.
        let tokens = self.begin_pass(transformer, ids)?;
        transformer.forward(&tokens, &self.state, &self.states, Logits::All)
    }

    /// The same pass for what the head would take, [ids, n_embd].
    pub fn states(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<Tensor> {
        let tokens = self.begin_pass(transformer, ids)?;
        transformer.states(&tokens, &self.state, &self.states)
    }

    /// Takes in a part of a prompt that is not the last.
    pub fn prefill(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<()> {
        let tokens = self.begin_prompt_pass(transformer, ids)?;
        transformer.append(&tokens, &self.state, &self.states)?;
        self.checkpoint(transformer.context(), 0)
    }

    /// Whether `adopt` can take over all of a prompt.
    pub fn can_adopt(&self, prompt: &[u32], from: &PrefillResult) -> bool {
        self.states.copyable(from.sequence, prompt.len()) == prompt.len()
    }

    /// Takes over a prompt that another sequence took in, with `steps` tokens of the answer after it.
    pub fn adopt(&mut self, context: &Context, prompt: &[u32], steps: usize, from: &PrefillResult) -> Result<()> {
        self.forget();
        self.states.copy_from(context, from.sequence, prompt.len())?;
        self.tokens.extend_from_slice(prompt);
        self.written = prompt.len();
        self.prefill_computed_len = from.prefill_computed_len;
        self.place_at(context, prompt.len() - from.advance, steps as u32)
    }

    /// The states have become those of `ids`, of which passes over several tokens took in the first `prefill_computed_len`.
    pub fn loaded(&mut self, ids: &[u32], prefill_computed_len: usize) {
        self.tokens = ids.to_vec();
        self.written = ids.len();
        self.prefill_computed_len = prefill_computed_len.min(ids.len());
        self.unshifted = None;
    }

    /// What the layers keep of this sequence.
    pub fn layer_states(&self) -> &LayerStates {
        &self.states
    }

    /// Lets the slot hold tokens whose states were saved (`state::save`). After an error it holds nothing.
    pub fn restore(
        &mut self,
        transformer: &Transformer,
        ids: Vec<u32>,
        prefill_computed_len: usize,
        bytes: &[u8],
    ) -> Result<()> {
        self.forget();
        // What it held is gone, whatever comes of this.
        self.written = usize::MAX;
        if ids.len() > self.capacity {
            bail!(
                ContextLengthExceeded,
                "{} tokens were saved, and the context holds {}; load with a larger contextLength",
                ids.len(),
                self.capacity
            );
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= transformer.config().vocab_size) {
            bail!(InvalidFile, "token id {id} was saved, and the vocabulary has {}", transformer.config().vocab_size);
        }
        state::restore(transformer.context(), &self.states, ids.len(), bytes)?;
        self.loaded(&ids, prefill_computed_len);
        Ok(())
    }

    /// Lets choices among what a mask leaves follow; after `configure`.
    pub async fn prepare_masks(&mut self, context: &Context) -> Result<()> {
        self.step.sampling.prepare_masks(context).await
    }

    /// One pass over `ids`, whose logits a choice is to be made from; it is step `step`.
    pub fn pass(&mut self, transformer: &Transformer, ids: &[u32], step: usize) -> Result<Tensor> {
        let tokens = self.begin_prompt_pass(transformer, ids)?;
        let logits = transformer.forward(&tokens, &self.state, &self.states, Logits::Last)?;
        self.checkpoint(transformer.context(), 0)?;
        // The pass left the state as it was, at step 0: the choice moves it on.
        if step > 0 {
            self.place_at(transformer.context(), self.tokens.len() - ids.len(), step as u32)?;
        }
        Ok(logits)
    }

    /// Chooses after a pass over `ids` tokens: from all tokens, or from what the state of the step allows.
    pub fn choose_after(&self, context: &Context, logits: &Tensor, ids: usize, masked: bool) -> Result<()> {
        let Step { sampling, logprobs, .. } = &self.step;
        let choose = || sampling.record(context, logits, ids, &self.tokens, masked);
        match logprobs {
            Some((rings, _)) if self.logprobs.is_some() => rings.around(context, logits, &self.target(), choose),
            _ => choose(),
        }
    }

    /// The first half of a decode step: takes in the token that was chosen last, where state and token say so.
    pub fn forward_step(&self, context: &Context) -> Result<()> {
        context.replay(&self.step.forward)
    }

    /// The second half: chooses from all tokens, or from what the state of the step allows.
    pub fn choose_step(&self, context: &Context, masked: bool) -> Result<()> {
        let Step { sampling, logprobs, .. } = &self.step;
        let choose = || sampling.replay(context, masked);
        match logprobs {
            Some((_, plans)) if self.logprobs.is_some() => plans.around(context, choose),
            _ => choose(),
        }
    }

    /// Whether fewer allowed tokens change nothing as long as the chosen one is among them.
    pub fn chooses_best_of_all(&self) -> bool {
        self.step.sampling.is_best_of_all()
    }

    /// Whether drafts of `count` tokens can be verified at once.
    pub fn can_verify(&self, count: usize) -> bool {
        self.verification.is_prepared(1 + count)
    }

    /// What recording passes that verify drafts takes: everything of it outlives the slot's borrow. `keep_verification` takes it back.
    pub fn lend_verification(&mut self, context: &Context) -> Result<(Verification, Tensor, LayerStates)> {
        // Recording runs a pass: it may write after the tokens only, and of a sequence that has stopped nothing else moves.
        self.place(context, 0)?;
        context.write(&self.state, 2, bytemuck::bytes_of(&1u32))?;
        Ok((std::mem::take(&mut self.verification), self.state.clone(), self.states.clone()))
    }

    pub fn keep_verification(&mut self, verification: Verification) {
        self.verification = verification;
    }

    /// Comes before `verify`: the states can return to where it begins.
    pub fn begin_verification(&mut self, transformer: &Transformer, last: u32, draft: &Draft) -> Result<()> {
        self.check(transformer, &[&[last], draft.known()].concat())?;
        let context = transformer.context();
        self.settle(transformer, 0)?;
        self.checkpoint(context, 0)?;
        self.place(context, 0)
    }

    /// One pass over a token that follows what the states hold, and a draft. What is to be read: the greedy token after each, and the
    /// tokens that it took in. The caller says which of them count, by `decoded`.
    pub fn verify(
        &self,
        context: &Context,
        last: u32,
        draft: &Draft,
    ) -> Result<[(&Tensor, std::ops::Range<usize>); 2]> {
        self.verification.run(context, last, draft)
    }

    /// Takes a token in without asking what follows.
    pub fn take_in(&mut self, transformer: &Transformer, token: u32) -> Result<()> {
        self.check(transformer, &[token])?;
        let context = transformer.context();
        self.settle(transformer, 0)?;
        self.resume(context, token, 0)?;
        context.replay(&self.step.forward)?;
        self.tokens.push(token);
        self.written += 1;
        Ok(())
    }

    /// Sampled tokens by step.
    pub fn ring(&self) -> &Tensor {
        &self.ring
    }

    /// Lets decode steps go on: the next one takes `token` in, and is step `step`.
    pub fn resume(&self, context: &Context, token: u32, step: usize) -> Result<()> {
        self.place(context, step as u32)?;
        self.step.sampling.set_text(context, &self.tokens)?;
        context.write(&self.token, 0, bytemuck::bytes_of(&token))
    }

    /// Records a decode step: the commands are the same every time.
    pub fn step(&self, context: &Context) -> Result<()> {
        self.forward_step(context)?;
        self.choose_step(context, false)
    }

    /// What a decode step chooses from, [1, vocab_size].
    pub fn logits(&self) -> &Tensor {
        &self.step.logits
    }

    #[cfg(test)]
    pub(super) fn tensors(&self, layers: usize) -> Vec<&Tensor> {
        let caches = (0..layers).map(|layer| self.states.kv().layer(layer)).flat_map(|(k, v)| [k, v]);
        [&self.state, &self.token, &self.ring].into_iter().chain(caches).collect()
    }

    /// [4] u32, [1] u32: what the next step reads.
    pub fn state(&self) -> &Tensor {
        &self.state
    }

    pub fn token(&self) -> &Tensor {
        &self.token
    }

    /// What its choices read and write, in one row.
    pub fn sampler(&self) -> &Sampler {
        self.step.sampling.sampler()
    }

    /// Where the tokens of `steps` steps from `first` on stand, and their log probabilities if they are wanted: `sampled` reads it.
    pub fn token_ranges(&self, first: usize, steps: usize) -> Vec<(&Tensor, std::ops::Range<usize>)> {
        let mut ranges: Vec<_> = ring_ranges(first, steps).map(|range| (&self.ring, range)).collect();
        if let (Some(_), Some((rings, _))) = (self.logprobs, &self.step.logprobs) {
            ranges.extend(rings.ranges(0, first, steps));
        }
        ranges
    }

    /// Tells the kernels where the next token stands.
    fn place(&self, context: &Context, step: u32) -> Result<()> {
        self.place_at(context, self.tokens.len(), step)
    }

    fn place_at(&self, context: &Context, position: usize, step: u32) -> Result<()> {
        let words = [position as u32, step, 0];
        context.write(&self.state, 0, bytemuck::cast_slice(&words))
    }

    fn check(&self, transformer: &Transformer, ids: &[u32]) -> Result<()> {
        let vocab_size = transformer.config().vocab_size;
        if ids.is_empty() {
            bail!(InvalidRequest, "there are no tokens to take in, wanted at least one");
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab_size) {
            bail!(InvalidRequest, "token id {id}, wanted ids below {vocab_size}, the size of the vocabulary");
        }
        let length = self.tokens.len() + ids.len();
        if length > self.capacity() {
            bail!(
                ContextLengthExceeded,
                "{length} tokens, and the context holds {}; shorten the messages or load with a larger contextLength",
                self.capacity()
            );
        }
        Ok(())
    }
}

/// How many tokens two sequences begin with in common.
pub fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
