//! One sequence's part of the caches, the tensors that kernels read and advance, and the recorded step of one token (llama.cpp's server
//! calls it a slot).
//!
//! Invariant: `tokens` are exactly the tokens that the layers' states have seen from position 0 on, except those that a context shift
//! dropped. Steps that ran past the end of the text have written more (`written`). Their keys and values are overwritten before they are
//! read, and a recurrent state is rolled back before anything follows (`settle`). If the model's own token ends the text, later steps write
//! nothing: the kernel that chooses it sets a flag in the state, and the others leave all states as they are.

use std::rc::Rc;

use super::adapters::{AdapterKey, AdapterSet};
use super::recorded_step::RecordedStep;
use super::verification::{Draft, Verification};
use crate::error::Result;
use crate::model::adapters::ActiveAdapters;
use crate::model::source_reader::SourceReader;
use crate::model::state::{self, SequenceState, Shift};
use crate::model::{LayerStates, Logits, Transformer};
use crate::sampler::{
    Ending, LogprobPlans, LogprobRings, RING, Sampler, Sampling, SamplingParams, Target, TokenRules, ring_ranges,
};
use crate::tensor::{Context, Desc, HostTensor, Tensor};

pub struct Slot {
    /// The number of its sequence in the shared cache.
    pub sequence: usize,
    /// This sequence's part of the layers' states.
    states: LayerStates,
    capacity: usize,
    /// [4] u32: position of the next token, step of the generation, whether it has stopped, number of the sequence in the cache.
    state: Tensor,
    /// [1] u32: the token that the next decode step takes in.
    token: Tensor,
    /// [RING] u32: sampled tokens by step.
    ring: Tensor,
    step: Step,
    verification: Verification,
    /// If log probabilities come with the tokens: for how many of the most probable ones.
    logprobs: Option<usize>,
    tokens: Vec<u32>,
    /// How many tokens passes were submitted for, from position 0 on: `tokens`, and those that ran ahead.
    written: usize,
    /// How many of them, from the first on, were computed by passes over several tokens. Kernels for one token round differently.
    prefill_computed_len: usize,
    /// After a context shift: how many tokens, from the first on, have seen no dropped tokens.
    unshifted: Option<usize>,
    shifts: ContextShifts,
    /// The tokens mean something only beside a text that an encoder has read.
    has_source: bool,
    /// The adapters with which passes computed what it holds.
    adapter_key: AdapterKey,
}

/// The prompt's states of one sequence. Others take them over instead of computing them.
#[derive(Clone)]
pub struct PrefillResult {
    /// The number of its sequence in the shared cache.
    pub sequence: usize,
    /// The logits after the prompt, [1, vocab_size].
    pub logits: Tensor,
    /// The number of tokens of the pass that gave the logits.
    pub advance: usize,
    /// `Slot::prefill_computed_len`
    pub prefill_computed_len: usize,
}

/// What context shifts did in one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextShifts {
    pub count: usize,
    pub dropped_tokens: usize,
}

/// The decode step of one token.
struct Step {
    forward: RecordedStep,
    sampling: Sampling,
    /// Recorded when a request first asks for log probabilities.
    logprobs: Option<(LogprobRings, LogprobPlans)>,
}

impl Slot {
    /// `states` has room for `capacity` tokens. Compiles all kernels and records the decode step.
    pub async fn new(transformer: &Transformer, states: LayerStates, capacity: usize, sequence: usize) -> Result<Self> {
        let context = transformer.context();
        let state = context.tensor(&HostTensor::u32(&[4], &[0, 0, 0, sequence as u32]))?;
        let token = context.zeros(Desc::u32(&[1]))?;
        let ring = context.zeros(Desc::u32(&[RING]))?;
        let forward = RecordedStep::new(transformer, &token, &state, &states).await?;
        let target = Target { state: state.clone(), token: token.clone(), ring: ring.clone() };
        let sampling = Sampling::new(context, forward.logits.clone(), target, capacity).await?;
        // A prompt's kernels are the same for any number of tokens above one.
        let prompt = context.empty(Desc::u32(&[2]), "prompt")?;
        context.prepare(|| transformer.forward(&prompt, &state, &states, Logits::Last)).await?;
        if transformer.has_encoder() {
            context.prepare(|| transformer.encode(&[0; 2], &states)).await?;
        }
        context.device().sync().await?;
        Ok(Self {
            sequence,
            states,
            capacity,
            state,
            token,
            ring,
            step: Step { forward, sampling, logprobs: None },
            verification: Verification::default(),
            logprobs: None,
            tokens: Vec::new(),
            written: 0,
            prefill_computed_len: 0,
            unshifted: None,
            shifts: ContextShifts::default(),
            has_source: transformer.has_encoder(),
            adapter_key: AdapterKey::default(),
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

    /// The tokens that a prompt with the same beginning can take over.
    pub fn reusable(&self) -> &[u32] {
        if self.has_source {
            return &[];
        }
        &self.tokens[..self.unshifted.unwrap_or(usize::MAX).min(self.tokens.len())]
    }

    /// The same for one that runs with these adapters.
    pub fn reusable_with(&self, key: AdapterKey) -> &[u32] {
        if key == self.adapter_key { self.reusable() } else { &[] }
    }

    /// The adapters of what it holds.
    pub fn adapter_key(&self) -> AdapterKey {
        self.adapter_key
    }

    /// Sets with which adapters passes run from now on. What others computed is forgotten.
    pub fn use_adapters(&mut self, transformer: &Transformer, set: &AdapterSet) -> Result<()> {
        if self.adapter_key != set.key() {
            self.forget();
            self.adapter_key = set.key();
        }
        self.states = self.states.clone().with_adapters(set.active());
        // Also zeros: others whose steps it shares may have adapters.
        set.write(transformer, self.sequence)
    }

    /// Records the decode step with the adapters that were set, unless the last one was with the same. Other scales take no other step.
    pub async fn prepare_adapters(&mut self, transformer: &Transformer) -> Result<()> {
        if self.states.adapters().is_none_or(|active| self.step.forward.has(active)) {
            return Ok(());
        }
        self.stop_for_recording(transformer.context())?;
        self.step.forward.record(transformer, &self.token, &self.state, &self.states).await
    }

    /// Lets go of adapters that were unloaded. Nobody may run on the slot.
    pub fn forget_unloaded(&mut self) {
        if self.states.adapters().is_some_and(ActiveAdapters::has_unloaded) {
            self.forget();
            self.adapter_key = AdapterKey::default();
            self.states = self.states.clone().with_adapters(None);
        }
        self.step.forward.forget_unloaded();
        self.verification.forget_unloaded();
    }

    /// Recording a pass runs it. It may write only after the tokens, and moves nothing else in a stopped sequence.
    fn stop_for_recording(&self, context: &Context) -> Result<()> {
        self.place_at(context, self.tokens.len().min(self.capacity.saturating_sub(1)), 0)?;
        context.write(&self.state, 2, bytemuck::bytes_of(&1u32))
    }

    /// Forgets all tokens.
    pub fn forget(&mut self) {
        self.truncate(0);
    }

    /// The slot forgets what it held, and gives up what it made for that: some of it may have found no room on the GPU.
    pub fn distrust(&mut self) {
        self.forget();
        self.states.give_up_checkpoints();
    }

    /// Keeps only the first `length` tokens. The next pass makes the states follow.
    pub fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.unshifted = self.unshifted.filter(|unshifted| *unshifted < length);
        self.prefill_computed_len = self.prefill_computed_len.min(length);
    }

    /// How many of the first `length` tokens the states can return to without another pass.
    pub fn recoverable(&self, length: usize) -> usize {
        if length == self.tokens.len() && self.written == length { length } else { self.states.recoverable(length) }
    }

    /// Steps were submitted that take in this many tokens.
    pub fn wrote(&mut self, tokens: usize) {
        self.written += tokens;
    }

    /// Called before a pass is submitted while passes over `in_flight` tokens are in flight. If other passes ran ahead and no longer count,
    /// returns the states to `tokens`. Returns whether that happened: then the tensors that say where the next step stands must be written.
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
            // The passes before were over the same tokens, but split differently.
            self.prefill_computed_len = self.prefill_computed_len.min(at);
            self.place_at(context, at, 0)?;
            let ids = &self.tokens[at..];
            let tokens = context.tensor(&HostTensor::u32(&[ids.len()], ids))?;
            transformer.append(&tokens, &self.state, &self.states)?;
            self.written = length;
        }
        Ok(true)
    }

    /// Saves a checkpoint here, so that the states can return; `in_flight` tokens are in flight.
    pub fn checkpoint(&self, context: &Context, in_flight: usize) -> Result<()> {
        self.states.checkpoint(context, self.tokens.len() + in_flight)
    }

    /// How many tokens, from the first on, have keys and values that another prefill would give to the bit, however it is split.
    pub fn prefill_computed_len(&self) -> usize {
        self.prefill_computed_len
    }

    /// Makes room in a full context: the first `sinks` tokens stay, and the newer half of the rest. Nothing may be in flight, and `resume`
    /// must follow. Returns how many tokens after the sinks were dropped.
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

    /// Since the last `configure`.
    pub fn shifts(&self) -> ContextShifts {
        self.shifts
    }

    /// A decode step has taken this token into the cache.
    pub fn decoded(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Sets how one generation samples, and what ends it.
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

    /// Sets whether the next generation's tokens have log probabilities: those of the `wanted` most probable tokens besides the chosen one.
    pub async fn configure_logprobs(&mut self, context: &Context, wanted: Option<usize>) -> Result<()> {
        self.logprobs = wanted;
        let Some(wanted) = wanted else { return Ok(()) };
        let rings = match self.step.logprobs.take() {
            Some(rings) => rings,
            None => {
                let rings = LogprobRings::new(context, 1)?;
                let plans = LogprobPlans::new(context, &rings, &self.step.forward.logits, &self.target()).await?;
                (rings, plans)
            }
        };
        self.step.logprobs.insert(rings).0.configure(context, &[wanted as u32])
    }

    /// How many of the most probable tokens get log probabilities, if any.
    pub fn logprobs(&self) -> Option<usize> {
        self.logprobs
    }

    /// Prepares a pass over `ids` after the present tokens, and returns its tokens. The slot counts them as taken in.
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

    /// The same as `begin_pass`, for a pass by the kernels of prompts.
    fn begin_prompt_pass(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<Tensor> {
        let before = self.tokens.len();
        let tokens = self.begin_pass(transformer, ids)?;
        if ids.len() > 1 && self.prefill_computed_len == before {
            self.prefill_computed_len += ids.len();
        }
        Ok(tokens)
    }

    /// The encoder reads a text, at least one token and no more than the context holds. The slot forgets what it held: what follows is
    /// written by that text.
    pub fn encode(&mut self, transformer: &Transformer, source: &[u32]) -> Result<()> {
        self.forget();
        self.check(transformer, source)?;
        transformer.encode(source, &self.states)?;
        self.states.source()?.set_length(transformer.context(), source.len())
    }

    /// The logits after each of `ids`, [ids, vocab_size], and the hidden states after these numbers of layers, [ids, n_embd] each.
    pub fn forward(
        &mut self,
        transformer: &Transformer,
        ids: &[u32],
        layers: &[usize],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        // A small batch has its own kernels.
        let tokens = self.begin_pass(transformer, ids)?;
        if layers.is_empty() {
            let logits = transformer.forward(&tokens, &self.state, &self.states, Logits::All)?;
            return Ok((logits, Vec::new()));
        }
        transformer.forward_with_hidden_states(&tokens, &self.state, &self.states, layers)
    }

    /// The same pass up to the input of the head, [ids, n_embd].
    pub fn states(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<Tensor> {
        let tokens = self.begin_pass(transformer, ids)?;
        transformer.states(&tokens, &self.state, &self.states)
    }

    /// Takes in a part of a prompt, but not its last part.
    pub fn prefill(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<()> {
        let tokens = self.begin_prompt_pass(transformer, ids)?;
        transformer.append(&tokens, &self.state, &self.states)?;
        self.checkpoint(transformer.context(), 0)
    }

    /// What a pass over a prompt's first tokens would do, for a caller that runs nothing.
    pub fn rehearse(&self, transformer: &Transformer, tokens: usize) -> Result<Tensor> {
        if transformer.has_encoder() {
            transformer.encode(&vec![0; tokens], &self.states)?;
        }
        let tokens = transformer.context().empty(Desc::u32(&[tokens]), "prompt")?;
        transformer.forward(&tokens, &self.state, &self.states, Logits::Last)
    }

    /// A pass was not submitted as a whole: the slot keeps its first `length` tokens, those before the pass.
    pub fn abandon(&mut self, length: usize) {
        self.truncate(length);
        // The next pass returns the states to there, however much of this one ran.
        self.written = self.written.max(length + 1);
    }

    /// Whether `adopt` can take over the whole prompt.
    pub fn can_adopt(&self, prompt: &[u32], from: &PrefillResult) -> bool {
        self.states.copyable(from.sequence, prompt.len()) == prompt.len()
    }

    /// Takes over a prompt from another sequence, with `steps` tokens of the answer after it.
    pub fn adopt(&mut self, context: &Context, prompt: &[u32], steps: usize, from: &PrefillResult) -> Result<()> {
        self.forget();
        self.states.copy_from(context, from.sequence, prompt.len())?;
        self.tokens.extend_from_slice(prompt);
        self.written = prompt.len();
        self.prefill_computed_len = from.prefill_computed_len;
        self.place_at(context, prompt.len() - from.advance, steps as u32)
    }

    /// The states are now those of `ids`. Passes over several tokens computed the first `prefill_computed_len`.
    pub fn loaded(&mut self, ids: &[u32], prefill_computed_len: usize) {
        self.tokens = ids.to_vec();
        self.written = ids.len();
        self.prefill_computed_len = prefill_computed_len.min(ids.len());
        self.unshifted = None;
    }

    /// This sequence's states.
    pub fn layer_states(&self) -> &LayerStates {
        &self.states
    }

    /// Fills the slot with saved tokens and their states (`state::save`), with which `reader` ends. After an error it holds nothing.
    pub async fn restore(
        &mut self,
        transformer: &Transformer,
        ids: Vec<u32>,
        prefill_computed_len: usize,
        reader: &mut SourceReader<'_>,
    ) -> Result<()> {
        self.forget();
        // The old contents are lost, even if this fails.
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
        state::restore(transformer.context(), &self.states, ids.len(), reader).await?;
        reader.check_sum().await?;
        if reader.left() > 0 {
            bail!(InvalidFile, "{} bytes follow what was saved", reader.left());
        }
        self.loaded(&ids, prefill_computed_len);
        Ok(())
    }

    /// Prepares choices under a mask. Called after `configure`.
    pub async fn prepare_masks(&mut self, context: &Context) -> Result<()> {
        self.step.sampling.prepare_masks(context).await
    }

    /// One pass over `ids`. A choice from its logits follows; it is step `step`.
    pub fn pass(&mut self, transformer: &Transformer, ids: &[u32], step: usize) -> Result<Tensor> {
        let tokens = self.begin_prompt_pass(transformer, ids)?;
        let logits = transformer.forward(&tokens, &self.state, &self.states, Logits::Last)?;
        self.checkpoint(transformer.context(), 0)?;
        // The pass left the state at step 0; the choice advances it.
        if step > 0 {
            self.place_at(transformer.context(), self.tokens.len() - ids.len(), step as u32)?;
        }
        Ok(logits)
    }

    /// Chooses after a pass over `ids` tokens: from all tokens, or from those that the mask of the step allows.
    pub fn choose_after(&self, context: &Context, logits: &Tensor, ids: usize, masked: bool) -> Result<()> {
        let Step { sampling, logprobs, .. } = &self.step;
        let choose = || sampling.record(context, logits, ids, &self.tokens, masked);
        match logprobs {
            Some((rings, _)) if self.logprobs.is_some() => rings.around(context, logits, &self.target(), choose),
            _ => choose(),
        }
    }

    /// The first half of a decode step: takes in the last chosen token, as state and token say.
    pub fn forward_step(&self, context: &Context) -> Result<()> {
        self.step.forward.replay(context, self.states.adapters())
    }

    /// The second half: chooses from all tokens, or from those that the mask of the step allows.
    pub fn choose_step(&self, context: &Context, masked: bool) -> Result<()> {
        let Step { sampling, logprobs, .. } = &self.step;
        let choose = || sampling.replay(context, masked);
        match logprobs {
            Some((_, plans)) if self.logprobs.is_some() => plans.around(context, choose),
            _ => choose(),
        }
    }

    /// Whether a narrower mask changes nothing as long as it allows the chosen token.
    pub fn chooses_best_of_all(&self) -> bool {
        self.step.sampling.is_best_of_all()
    }

    /// Whether the pass for drafts like this one is recorded.
    pub fn can_verify(&self, draft: &Draft) -> bool {
        self.verification.is_prepared(draft, self.states.adapters())
    }

    /// Lends what recording a verifying pass needs; it outlives the slot's borrow. `keep_verification` takes it back.
    pub fn lend_verification(&mut self, context: &Context) -> Result<(Verification, Tensor, LayerStates)> {
        self.stop_for_recording(context)?;
        Ok((std::mem::take(&mut self.verification), self.state.clone(), self.states.clone()))
    }

    pub fn keep_verification(&mut self, verification: Verification) {
        self.verification = verification;
    }

    /// Called before `verify`, so that the states can return to where it begins.
    pub fn begin_verification(&mut self, transformer: &Transformer, last: u32, draft: &Draft) -> Result<()> {
        self.check(transformer, &[&[last], draft.known()].concat())?;
        let context = transformer.context();
        self.settle(transformer, 0)?;
        self.checkpoint(context, 0)?;
        self.place(context, 0)
    }

    /// One pass over the token after the present ones, and a draft. Returns what to read: the greedy token after each, and the tokens taken
    /// in. The caller says by `decoded` which of them count.
    pub fn verify(
        &self,
        context: &Context,
        last: u32,
        draft: &Draft,
    ) -> Result<[(&Tensor, std::ops::Range<usize>); 2]> {
        let place = (self.tokens.len(), self.sequence);
        self.verification.run(context, place, last, draft, self.states.adapters())
    }

    /// Takes a token in, without its logits.
    pub fn take_in(&mut self, transformer: &Transformer, token: u32) -> Result<()> {
        self.check(transformer, &[token])?;
        let context = transformer.context();
        self.settle(transformer, 0)?;
        self.resume(context, token, 0)?;
        self.forward_step(context)?;
        self.tokens.push(token);
        self.written += 1;
        Ok(())
    }

    /// Sampled tokens by step.
    pub fn ring(&self) -> &Tensor {
        &self.ring
    }

    /// Lets decode steps go on: the next one is step `step` and takes `token` in.
    pub fn resume(&self, context: &Context, token: u32, step: usize) -> Result<()> {
        self.place(context, step as u32)?;
        self.step.sampling.set_text(context, &self.tokens)?;
        context.write(&self.token, 0, bytemuck::bytes_of(&token))
    }

    /// Records a decode step. The commands are the same every time.
    pub fn step(&self, context: &Context) -> Result<()> {
        self.forward_step(context)?;
        self.choose_step(context, false)
    }

    /// The logits that a decode step chooses from, [1, vocab_size].
    pub fn logits(&self) -> &Tensor {
        &self.step.forward.logits
    }

    #[cfg(test)]
    pub(super) fn tensors(&self, layers: usize) -> Vec<&Tensor> {
        let caches = (0..layers).map(|layer| self.states.kv().layer(layer)).flat_map(|(k, v)| [k, v]);
        [&self.state, &self.token, &self.ring].into_iter().chain(caches).collect()
    }

    /// [4] u32 and [1] u32: what the next step reads.
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

    /// Where the tokens of `steps` steps from `first` on are, and their log probabilities if wanted. `sampled` reads them.
    pub fn token_ranges(&self, first: usize, steps: usize) -> Vec<(&Tensor, std::ops::Range<usize>)> {
        let mut ranges: Vec<_> = ring_ranges(first, steps).map(|range| (&self.ring, range)).collect();
        if let (Some(_), Some((rings, _))) = (self.logprobs, &self.step.logprobs) {
            ranges.extend(rings.ranges(0, first, steps));
        }
        ranges
    }

    /// Tells the kernels the position of the next token.
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

/// How many tokens two sequences have in common at their beginning.
pub fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
