//! A sequence's part of the caches: its keys and values, the state that kernels read and advance, and the recorded step of one token
//! (llama.cpp's server calls it a slot).
//!
//! Invariant: `tokens` are exactly the tokens whose keys and values stand in the cache from position 0 on; after a context shift
//! without those that were dropped. Steps that ran ahead of the text's end write after them; that is overwritten before it is read.
//! If the end is a token of the model's, they write nothing: the kernel that chooses it sets a flag in the state, and the others leave
//! the cache and the state as they are.

use std::rc::Rc;

use super::verification::{Draft, Verification};
use crate::error::Result;
use crate::model::{KvCache, Logits, Transformer};
use crate::sampler::{
    Ending, LogprobPlans, LogprobRings, RING, Sampler, Sampling, SamplingParams, Target, TokenRules, ring_ranges,
};
use crate::tensor::{Context, Desc, HostTensor, Plan, Tensor};

pub struct Slot {
    /// Its number in the cache of all.
    pub sequence: usize,
    cache: Rc<KvCache>,
    capacity: usize,
    /// [4] u32: position of the next token, step of the generation, whether it has stopped, number of the sequence in the cache.
    state: Tensor,
    /// [1] u32: what the next decode step takes in.
    token: Tensor,
    /// [RING] u32: sampled tokens by step.
    ring: Tensor,
    /// Recorded before the first use.
    decode: Option<Decode>,
    verification: Verification,
    /// Log probabilities come with the tokens: of how many of the most probable ones.
    logprobs: Option<usize>,
    tokens: Vec<u32>,
    /// So many of them were taken in by passes over several tokens, as the tokens of a prompt are. Kernels for one token round otherwise.
    by_passes: usize,
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
    /// `Slot::by_passes`
    pub by_passes: usize,
}

/// What context shifts of one generation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextShifts {
    pub count: usize,
    pub dropped_tokens: usize,
}

/// The decode step of one token.
struct Decode {
    /// [1, vocab_size], which `forward` gives.
    logits: Tensor,
    forward: Plan,
    sampling: Sampling,
    /// Recorded when log probabilities are first asked for.
    logprobs: Option<(LogprobRings, LogprobPlans)>,
}

impl Slot {
    /// `cache` has room for `capacity` tokens.
    pub fn new(context: &Context, cache: KvCache, capacity: usize, sequence: usize) -> Result<Self> {
        Ok(Self {
            sequence,
            cache: Rc::new(cache),
            capacity,
            state: context.tensor(&HostTensor::u32(&[4], &[0, 0, 0, sequence as u32]))?,
            token: context.zeros(Desc::u32(&[1]))?,
            ring: context.zeros(Desc::u32(&[RING]))?,
            decode: None,
            verification: Verification::default(),
            logprobs: None,
            tokens: Vec::new(),
            by_passes: 0,
            unshifted: None,
            shifts: ContextShifts::default(),
        })
    }

    /// Compiles all kernels and records the decode step, where that was not done yet.
    pub async fn prepare(&mut self, context: &Context, transformer: &Transformer) -> Result<()> {
        if self.decode.is_some() {
            return Ok(());
        }
        let Self { state, token, cache, .. } = &*self;
        let (logits, forward) = context.plan(|| transformer.forward(token, state, cache, Logits::Last)).await?;
        let logits = logits_of(logits)?;
        let sampling = Sampling::new(context, logits.clone(), self.target(), self.capacity).await?;
        // The kernels of a prompt do not depend on how many tokens it has, as long as they are several.
        let prompt = context.empty(Desc::u32(&[2]), "prompt")?;
        context.prepare(|| transformer.forward(&prompt, state, cache, Logits::Last)).await?;
        context.device().sync().await?;
        self.decode = Some(Decode { logits, forward, sampling, logprobs: None });
        Ok(())
    }

    fn target(&self) -> Target {
        Target { state: self.state.clone(), token: self.token.clone(), ring: self.ring.clone() }
    }

    fn decode(&self) -> Result<&Decode> {
        self.decode.as_ref().ok_or_else(|| err!(Internal, "a slot is used before it was prepared"))
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

    /// Forgets what the cache holds.
    pub fn forget(&mut self) {
        self.truncate(0);
    }

    /// Keeps only the first `length` tokens.
    pub fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.unshifted = self.unshifted.filter(|unshifted| *unshifted < length);
        self.by_passes = self.by_passes.min(length);
    }

    /// How many tokens from the first on have keys and values that another pass over them, in whatever parts, would give to the bit.
    pub fn by_passes(&self) -> usize {
        self.by_passes
    }

    /// Makes room in a full context: the first `sinks` tokens stay, and of the rest the newer half. To be called while nothing is in
    /// flight, and to be followed by `resume`. Returns how many tokens behind the sinks were dropped.
    pub fn shift(&mut self, transformer: &Transformer, sinks: usize) -> Result<usize> {
        let length = self.tokens.len();
        let dropped = (length.saturating_sub(sinks) / 2).max(1);
        transformer.shift(&self.cache, sinks, dropped, length)?;
        self.tokens.drain(sinks..sinks + dropped);
        self.unshifted = Some(self.unshifted.unwrap_or(usize::MAX).min(sinks));
        self.by_passes = self.by_passes.min(sinks);
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
        self.prepare(context, transformer).await?;
        match &mut self.decode {
            Some(decode) => decode.sampling.configure(context, settings, rules, ending).await,
            None => bail!(Internal, "a slot that was prepared has no step"),
        }
    }

    /// Lets log probabilities come with the tokens of the next generation: of so many of the most probable ones besides the chosen.
    pub async fn configure_logprobs(&mut self, context: &Context, wanted: Option<usize>) -> Result<()> {
        self.logprobs = wanted;
        let Some(wanted) = wanted else { return Ok(()) };
        let target = self.target();
        let Some(decode) = &mut self.decode else { bail!(Internal, "a slot is used before it was prepared") };
        if decode.logprobs.is_none() {
            let rings = LogprobRings::new(context, 1)?;
            let plans = LogprobPlans::new(context, &rings, &decode.logits, &target).await?;
            decode.logprobs = Some((rings, plans));
        }
        match &decode.logprobs {
            Some((rings, _)) => rings.configure(context, &[wanted as u32]),
            None => Ok(()),
        }
    }

    /// Of how many of the most probable tokens log probabilities come with the tokens.
    pub fn logprobs(&self) -> Option<usize> {
        self.logprobs
    }

    /// One forward pass over `ids`, appended to what the cache holds.
    pub fn forward(&mut self, transformer: &Transformer, ids: &[u32], logits: Logits) -> Result<Option<Tensor>> {
        self.check(transformer, ids)?;
        let context = transformer.context();
        self.place(context, 0)?;
        let tokens = context.tensor(&HostTensor::u32(&[ids.len()], ids))?;
        // Where all logits are wanted, few tokens take kernels of their own.
        if ids.len() > 1 && logits != Logits::All && self.by_passes == self.tokens.len() {
            self.by_passes += ids.len();
        }
        let logits = transformer.forward(&tokens, &self.state, &self.cache, logits)?;
        self.tokens.extend_from_slice(ids);
        Ok(logits)
    }

    /// The same pass for what the head would take, [ids, n_embd].
    pub fn states(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<Tensor> {
        self.check(transformer, ids)?;
        self.place(transformer.context(), 0)?;
        let tokens = transformer.context().tensor(&HostTensor::u32(&[ids.len()], ids))?;
        let states = transformer.states(&tokens, &self.state, &self.cache)?;
        self.tokens.extend_from_slice(ids);
        Ok(states)
    }

    /// Takes in a part of a prompt that is not the last.
    pub fn prefill(&mut self, transformer: &Transformer, ids: &[u32]) -> Result<()> {
        self.forward(transformer, ids, Logits::None).map(|_| ())
    }

    /// Takes over a prompt, with `steps` tokens of the answer behind it, that another sequence's session took in.
    pub fn adopt(&mut self, context: &Context, prompt: &[u32], steps: usize, from: &PrefillResult) -> Result<()> {
        self.forget();
        self.cache.copy_from(context, from.sequence, prompt.len())?;
        self.tokens.extend_from_slice(prompt);
        self.by_passes = from.by_passes;
        self.place_at(context, prompt.len() - from.advance, steps as u32)
    }

    /// Lets choices among what a mask leaves follow; after `configure`.
    pub async fn prepare_masks(&mut self, context: &Context) -> Result<()> {
        match &mut self.decode {
            Some(decode) => decode.sampling.prepare_masks(context).await,
            None => bail!(Internal, "a slot is used before it was prepared"),
        }
    }

    /// One pass over `ids`, whose logits a choice is to be made from; it is step `step`.
    pub fn pass(&mut self, transformer: &Transformer, ids: &[u32], step: usize) -> Result<Tensor> {
        let logits = logits_of(self.forward(transformer, ids, Logits::Last)?)?;
        // The pass left the state as it was, at step 0: the choice moves it on.
        if step > 0 {
            self.place_at(transformer.context(), self.tokens.len() - ids.len(), step as u32)?;
        }
        Ok(logits)
    }

    /// Chooses after a pass over `ids` tokens: from all tokens, or from what the state of the step allows.
    pub fn choose_after(&self, context: &Context, logits: &Tensor, ids: usize, masked: bool) -> Result<()> {
        let Decode { sampling, logprobs, .. } = self.decode()?;
        let choose = || sampling.record(context, logits, ids, &self.tokens, masked);
        match logprobs {
            Some((rings, _)) if self.logprobs.is_some() => rings.around(context, logits, &self.target(), choose),
            _ => choose(),
        }
    }

    /// The first half of a decode step: takes in the token that was chosen last, where state and token say so.
    pub fn forward_step(&self, context: &Context) -> Result<()> {
        context.replay(&self.decode()?.forward)
    }

    /// The second half: chooses from all tokens, or from what the state of the step allows.
    pub fn choose_step(&self, context: &Context, masked: bool) -> Result<()> {
        let Decode { sampling, logprobs, .. } = self.decode()?;
        let choose = || sampling.replay(context, masked);
        match logprobs {
            Some((_, plans)) if self.logprobs.is_some() => plans.around(context, choose),
            _ => choose(),
        }
    }

    /// Whether fewer allowed tokens change nothing as long as the chosen one is among them.
    pub fn chooses_best_of_all(&self) -> Result<bool> {
        Ok(self.decode()?.sampling.is_best_of_all())
    }

    /// Whether drafts of `count` tokens can be verified at once.
    pub fn can_verify(&self, count: usize) -> bool {
        self.verification.is_prepared(1 + count)
    }

    /// What recording passes that verify drafts takes: everything of it outlives the slot's borrow. `keep_verification` takes it back.
    pub fn lend_verification(&mut self, context: &Context) -> Result<(Verification, Tensor, Rc<KvCache>)> {
        // Recording runs a pass: it may write after the tokens only.
        self.place(context, 0)?;
        Ok((std::mem::take(&mut self.verification), self.state.clone(), self.cache.clone()))
    }

    pub fn keep_verification(&mut self, verification: Verification) {
        self.verification = verification;
    }

    /// One pass over a token that follows what the cache holds, and a draft. What is to be read: the greedy token after each, and the
    /// tokens that it took in. The caller says which of them count, by `decoded`.
    pub fn verify(
        &self,
        transformer: &Transformer,
        last: u32,
        draft: &Draft,
    ) -> Result<[(&Tensor, std::ops::Range<usize>); 2]> {
        self.check(transformer, &[&[last], draft.known()].concat())?;
        let length = self.tokens.len() + 1 + draft.len();
        if length > self.capacity {
            bail!(Internal, "a draft up to token {length} of {}", self.capacity);
        }
        self.place(transformer.context(), 0)?;
        self.verification.run(transformer.context(), last, draft)
    }

    /// Takes a token in without asking what follows.
    pub fn take_in(&mut self, transformer: &Transformer, token: u32) -> Result<()> {
        self.check(transformer, &[token])?;
        let context = transformer.context();
        self.resume(context, token, 0)?;
        context.replay(&self.decode()?.forward)?;
        self.tokens.push(token);
        Ok(())
    }

    /// Sampled tokens by step.
    pub fn ring(&self) -> &Tensor {
        &self.ring
    }

    /// Lets decode steps go on: the next one takes `token` in, and is step `step`.
    pub fn resume(&self, context: &Context, token: u32, step: usize) -> Result<()> {
        self.place(context, step as u32)?;
        self.decode()?.sampling.set_text(context, &self.tokens)?;
        context.write(&self.token, 0, bytemuck::bytes_of(&token))
    }

    /// Records a decode step: the commands are the same every time.
    pub fn step(&self, context: &Context) -> Result<()> {
        self.forward_step(context)?;
        self.choose_step(context, false)
    }

    /// What a decode step chooses from, [1, vocab_size].
    pub fn logits(&self) -> Result<&Tensor> {
        Ok(&self.decode()?.logits)
    }

    #[cfg(test)]
    pub(super) fn tensors(&self, layers: usize) -> Vec<&Tensor> {
        let caches = (0..layers).map(|layer| self.cache.layer(layer)).flat_map(|(k, v)| [k, v]);
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
    pub fn sampler(&self) -> Result<&Sampler> {
        Ok(self.decode()?.sampling.sampler())
    }

    /// Where the tokens of `steps` steps from `first` on stand, and their log probabilities if they are wanted: `sampled` reads it.
    pub fn token_ranges(&self, first: usize, steps: usize) -> Vec<(&Tensor, std::ops::Range<usize>)> {
        let mut ranges: Vec<_> = ring_ranges(first, steps).map(|range| (&self.ring, range)).collect();
        if let (Some(_), Some(Decode { logprobs: Some((rings, _)), .. })) = (self.logprobs, &self.decode) {
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

fn logits_of(logits: Option<Tensor>) -> Result<Tensor> {
    logits.ok_or_else(|| err!(Internal, "there are no logits to sample from"))
}

/// How many tokens two sequences begin with in common.
pub fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
