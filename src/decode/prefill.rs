//! Takes a prompt into the caches in parts: large parts use the GPU well, small ones let the page draw and other sequences decode.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use web_time::Instant;

use super::adapters::AdapterSet;
use super::cancel::Canceller;
use super::prefill_pace::PrefillPace;
use super::prompt_cache::{FEWEST_TOKENS, PromptCache};
use super::relief::Relief;
use super::sequence::SequenceParams;
use super::slot::{PrefillResult, Slot, common_prefix};
use super::slots::{SlotLease, Slots, keep};
use crate::error::Result;
use crate::model::Transformer;

/// A prompt that is in the caches, and the logits after it.
pub struct Prefilled {
    pub slot: SlotLease,
    pub result: PrefillResult,
    /// How many tokens the caches already held.
    pub cached: usize,
    /// How many tokens the last pass took in, and when it began. None if the prompt was taken over from another sequence.
    pub last_pass: Option<(usize, Instant)>,
}

/// A prompt, and the first tokens of the answer if they are certain.
pub struct Prompt<'a> {
    pub tokens: &'a [u32],
    /// What the encoder of an encoder-decoder reads; then `tokens` is how its decoder begins.
    pub source: Option<&'a [u32]>,
    /// How many tokens at the end of `tokens` belong to the answer.
    pub forced: usize,
    /// The same request must give the same tokens again.
    pub is_reproducible: bool,
    /// How many of the most probable tokens get log probabilities.
    pub logprobs: Option<usize>,
    /// What it runs with.
    pub adapters: AdapterSet,
    /// Ends it between two passes.
    pub canceller: Canceller,
}

/// Takes prompts in.
pub struct Prefill<'a> {
    pub transformer: &'a Transformer,
    pub slots: &'a Rc<Slots>,
    pub cache: &'a RefCell<PromptCache>,
    pub pace: &'a RefCell<PrefillPace>,
    /// Whether other sequences wait for their next tokens.
    pub is_decoding: &'a dyn Fn() -> bool,
    /// How memory is saved.
    pub relief: Relief,
}

impl Prefill<'_> {
    /// Takes a prompt in, without the part at its beginning that a slot already holds. `None` if it was cancelled; what was taken in stays for
    /// later prompts.
    pub async fn run(&self, prompt: &Prompt<'_>, params: &SequenceParams) -> Result<Option<Prefilled>> {
        let Some(source) = prompt.source else {
            let lease =
                self.configured(self.with_prefix(prompt.tokens, &prompt.adapters).await?, prompt, params).await?;
            return self.take_in(lease, prompt).await;
        };
        let lease = self.slots.emptied(self.cache, self.relief).await?;
        let mut lease = self.configured(lease, prompt, params).await?;
        if !self.read_source(&mut lease, source, &prompt.canceller).await? {
            return Ok(None);
        }
        self.take_in(lease, prompt).await
    }

    /// The encoder's pass over a text. False if it was cancelled.
    async fn read_source(&self, slot: &mut Slot, source: &[u32], canceller: &Canceller) -> Result<bool> {
        if canceller.is_cancelled() {
            return Ok(false);
        }
        let pass = || slot.encode(self.transformer, source);
        if self.transformer.context().device().is_paced() {
            return Ok(self.in_pieces(source.len(), canceller, pass).await?.is_some());
        }
        self.attempt(source.len(), pass).await?;
        Ok(true)
    }

    async fn take_in(&self, mut lease: SlotLease, prompt: &Prompt<'_>) -> Result<Option<Prefilled>> {
        let tokens = prompt.tokens;
        let device = self.transformer.context().device();
        let slot = &mut *lease;
        // The last token is always computed, since its logits are wanted.
        let mut common = common_prefix(slot.reusable(), &tokens[..tokens.len() - 1]);
        if prompt.is_reproducible {
            // Passes over one token round differently from passes over several. The cache's contents must not decide which of them a
            // prompt's token takes.
            common = common.min(slot.prefill_computed_len()).min(tokens.len().saturating_sub(2));
        }
        common = slot.recoverable(common);
        slot.truncate(common);
        let mut done = common;
        loop {
            if prompt.canceller.is_cancelled() {
                lease.settle();
                return Ok(None);
            }
            let slot = &mut *lease;
            let begin = Instant::now();
            let rest = tokens.len() - done;
            let mut part = self.part_of(rest);
            if prompt.is_reproducible && rest == part + 1 {
                part -= 1;
            }
            if part == rest {
                let _rows = self.transformer.hold_rows(&tokens[done..]).await?;
                let slot = &mut *lease;
                let last = || slot.pass(self.transformer, &tokens[done..], prompt.forced);
                let logits = if device.is_paced() {
                    let Some(logits) = self.in_pieces(part, &prompt.canceller, last).await? else {
                        lease.abandon(done);
                        lease.settle();
                        return Ok(None);
                    };
                    logits
                } else {
                    self.attempt(part, last).await?
                };
                let slot = &*lease;
                let (sequence, prefill_computed_len) = (slot.sequence, slot.prefill_computed_len());
                let result = PrefillResult { sequence, logits, advance: part, prefill_computed_len };
                return Ok(Some(Prefilled { slot: lease, result, cached: common, last_pass: Some((part, begin)) }));
            }
            if !self.pass(slot, &tokens[done..done + part], &prompt.canceller).await? {
                lease.settle();
                return Ok(None);
            }
            done += part;
        }
    }

    /// Takes a part in and waits until the GPU has done so. This limits how much is submitted at once, so that the page can draw and other
    /// sequences get their tokens between the parts. Where the device cuts submits, it is enough that all of them were handed over. False if it
    /// was cancelled before that; then the slot holds what it held before.
    async fn pass(&self, slot: &mut Slot, part: &[u32], canceller: &Canceller) -> Result<bool> {
        let device = self.transformer.context().device();
        let before = slot.tokens().len();
        let _rows = self.transformer.hold_rows(part).await?;
        if device.is_paced() {
            let is_sent =
                self.in_pieces(part.len(), canceller, || slot.prefill(self.transformer, part)).await?.is_some();
            if !is_sent {
                slot.abandon(before);
            }
            return Ok(is_sent);
        }
        let begin = Instant::now();
        self.attempt(part.len(), || slot.prefill(self.transformer, part)).await?;
        device.sync().await?;
        self.pace.borrow_mut().took(part.len(), begin.elapsed());
        Ok(true)
    }

    /// Records a pass over `tokens` tokens, waits until it has been handed over in pieces, and learns from it. None if it was cancelled before
    /// that; then the GPU does not get the rest.
    async fn in_pieces<T>(
        &self,
        tokens: usize,
        canceller: &Canceller,
        pass: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let device = self.transformer.context().device();
        device.take_longest_dispatch();
        let begin = device.now();
        // While it is waited for, others submit too, and nothing of theirs may be taken back.
        let own = Cell::new((0, 0));
        let submitting = || {
            let first = device.submitted();
            let result = pass();
            own.set((first, device.submitted()));
            result
        };
        let result = self.attempt(tokens, submitting).await?;
        let is_sent = device.sent_while(own.get(), &|| !canceller.is_cancelled()).await?;
        if is_sent {
            let mut pace = self.pace.borrow_mut();
            pace.took(tokens, device.now().saturating_sub(begin));
            pace.took_dispatch(tokens, device.take_longest_dispatch());
        }
        Ok(is_sent.then_some(result))
    }

    /// A slot that holds as many of `tokens` as it can return to, and how many. What is missing is computed, unless that is hardly anything.
    pub async fn hold(&self, tokens: &[u32], adapters: &AdapterSet) -> Result<(SlotLease, usize)> {
        let mut lease = self.with_prefix(tokens, adapters).await?;
        let slot = &mut *lease;
        let mut held = slot.recoverable(common_prefix(slot.reusable(), tokens));
        if held == 0 || tokens.len() - held >= FEWEST_TOKENS {
            slot.truncate(held);
            while held < tokens.len() {
                let part = self.part_of(tokens.len() - held);
                self.pass(slot, &tokens[held..held + part], &Canceller::default()).await?;
                held += part;
            }
            held = slot.recoverable(held);
        }
        lease.settle();
        Ok((lease, held))
    }

    /// Takes over the result of another sequence's prefill.
    pub async fn adopt(
        &self,
        prompt: &Prompt<'_>,
        params: &SequenceParams,
        from: &PrefillResult,
    ) -> Result<Option<Prefilled>> {
        let mut lease = self.configured(self.slots.emptied(self.cache, self.relief).await?, prompt, params).await?;
        if !lease.can_adopt(prompt.tokens, from) {
            return self.take_in(lease, prompt).await;
        }
        lease.adopt(self.transformer.context(), prompt.tokens, prompt.forced, from)?;
        let cached = prompt.tokens.len();
        Ok(Some(Prefilled { slot: lease, result: from.clone(), cached, last_pass: None }))
    }

    /// The slot with the longest beginning of a prompt, from the slots or the prompt cache. What it loses goes to the prompt cache.
    async fn with_prefix(&self, tokens: &[u32], adapters: &AdapterSet) -> Result<SlotLease> {
        let (context, key) = (self.transformer.context(), adapters.key());
        // The last token is always computed, since its logits are wanted.
        let tokens = &tokens[..tokens.len() - 1];
        let is_known = self.cache.borrow_mut().known(key, tokens) > self.slots.held(key, tokens);
        // What is loaded replaces the contents of the least recently used slot.
        let mut lease = SlotLease::new(self.slots, key, if is_known { &[] } else { tokens }).await?;
        // Other sequences may have changed the cache while the slot was prepared.
        let held = common_prefix(lease.reusable_with(key), tokens);
        let loads = self.cache.borrow_mut().known(key, tokens) > held;
        keep(context, self.cache, &lease, if loads { 0 } else { held }, self.relief).await?;
        lease.use_adapters(self.transformer, adapters)?;
        let mut cache = self.cache.borrow_mut();
        // What is kept may have taken the place of what was known, and so may what others kept meanwhile.
        let loads = loads && cache.known(key, tokens) > held;
        if loads {
            cache.load(context, &mut lease, tokens)?;
        }
        cache.count(loads);
        Ok(lease)
    }

    /// How many of a prompt's `rest` tokens the next pass takes.
    fn part_of(&self, rest: usize) -> usize {
        let mut pace = self.pace.borrow_mut();
        pace.set_in_pieces(self.transformer.context().device().is_paced());
        let most = self.transformer.row_cache().map_or(usize::MAX, |cache| cache.most_tokens());
        pace.part_of(rest, (self.is_decoding)()).min(self.relief.most_tokens).min(most)
    }

    /// Submits a pass, whose activations may find no room.
    async fn attempt<T>(&self, tokens: usize, pass: impl FnOnce() -> Result<T>) -> Result<T> {
        let what = format!("a pass over {tokens} tokens of a prompt");
        self.transformer.context().device().attempt(&what, pass).await
    }

    async fn configured(
        &self,
        mut lease: SlotLease,
        prompt: &Prompt<'_>,
        params: &SequenceParams,
    ) -> Result<SlotLease> {
        let (slot, context) = (&mut *lease, self.transformer.context());
        slot.use_adapters(self.transformer, &prompt.adapters)?;
        slot.prepare_adapters(self.transformer).await?;
        slot.configure(self.transformer, &params.sampler, &params.rules, &params.ending).await?;
        if params.masked {
            slot.prepare_masks(context).await?;
        }
        slot.configure_logprobs(context, prompt.logprobs).await?;
        Ok(lease)
    }
}
