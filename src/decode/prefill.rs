//! A prompt on its way into the caches, in parts: many tokens at once use the GPU well, few leave others their frames and tokens.

use std::cell::RefCell;
use std::rc::Rc;

use web_time::Instant;

use super::prefill_pace::PrefillPace;
use super::prompt_cache::PromptCache;
use super::sequence::SequenceParams;
use super::slot::{PrefillResult, common_prefix};
use super::slots::{SlotLease, Slots};
use crate::error::Result;
use crate::model::Transformer;

/// A prompt in the caches, and the logits after it.
pub struct Prefilled {
    pub slot: SlotLease,
    pub result: PrefillResult,
    /// Tokens that the caches already held.
    pub cached: usize,
    /// The pass that gave the logits: how many tokens it took in, and when it began. None if another sequence's was taken over.
    pub last_pass: Option<(usize, Instant)>,
}

/// A prompt, and the tokens of the answer that are certain.
pub struct Prompt<'a> {
    pub tokens: &'a [u32],
    /// So many at the end of `tokens` are of the answer.
    pub forced: usize,
    /// The same request gives the same tokens again.
    pub is_reproducible: bool,
    /// Of how many of the most probable tokens the kernels give log probabilities.
    pub logprobs: Option<usize>,
}

/// Takes prompts in.
pub struct Prefill<'a> {
    pub transformer: &'a Transformer,
    pub slots: &'a Rc<Slots>,
    pub cache: &'a RefCell<PromptCache>,
    pub pace: &'a RefCell<PrefillPace>,
    /// Others wait for their next tokens meanwhile.
    pub is_decoding: &'a dyn Fn() -> bool,
}

impl Prefill<'_> {
    /// Takes a prompt in, but for the beginning that a slot already holds.
    pub async fn run(&self, prompt: &Prompt<'_>, params: &SequenceParams) -> Result<Prefilled> {
        let lease = self.configured(self.with_prefix(prompt.tokens).await?, prompt, params).await?;
        self.take_in(lease, prompt).await
    }

    async fn take_in(&self, mut lease: SlotLease, prompt: &Prompt<'_>) -> Result<Prefilled> {
        let tokens = prompt.tokens;
        let slot = &mut *lease;
        // The last token is always taken in anew: its logits are wanted.
        let mut common = common_prefix(slot.reusable(), &tokens[..tokens.len() - 1]);
        if prompt.is_reproducible {
            // Passes over one token round otherwise than those over several, so what the cache happens to hold must not decide which
            // of them a token of the prompt takes.
            common = common.min(slot.prefill_computed_len()).min(tokens.len().saturating_sub(2));
        }
        common = slot.recoverable(common);
        slot.truncate(common);
        let mut done = common;
        loop {
            let begin = Instant::now();
            let rest = tokens.len() - done;
            let mut part = self.pace.borrow().part_of(rest, (self.is_decoding)());
            if prompt.is_reproducible && rest == part + 1 {
                part -= 1;
            }
            if part == rest {
                let logits = slot.pass(self.transformer, &tokens[done..], prompt.forced)?;
                let (sequence, prefill_computed_len) = (slot.sequence, slot.prefill_computed_len());
                let result = PrefillResult { sequence, logits, advance: part, prefill_computed_len };
                return Ok(Prefilled { slot: lease, result, cached: common, last_pass: Some((part, begin)) });
            }
            slot.prefill(self.transformer, &tokens[done..done + part])?;
            done += part;
            // Bounds what is submitted at once, so that the page gets its frames between the parts, and others their tokens.
            self.transformer.context().device().sync().await?;
            self.pace.borrow_mut().took(part, begin.elapsed());
        }
    }

    /// Takes over what another sequence's prefill left.
    pub async fn adopt(&self, prompt: &Prompt<'_>, params: &SequenceParams, from: &PrefillResult) -> Result<Prefilled> {
        let mut lease = self.configured(self.slots.emptied(self.cache).await?, prompt, params).await?;
        if !lease.can_adopt(prompt.tokens, from) {
            return self.take_in(lease, prompt).await;
        }
        lease.adopt(self.transformer.context(), prompt.tokens, prompt.forced, from)?;
        let cached = prompt.tokens.len();
        Ok(Prefilled { slot: lease, result: from.clone(), cached, last_pass: None })
    }

    /// A slot that holds as much of a prompt's beginning as any or the cache does. What it loses by that is kept.
    async fn with_prefix(&self, tokens: &[u32]) -> Result<SlotLease> {
        let context = self.transformer.context();
        // The last token is always taken in anew: its logits are wanted.
        let tokens = &tokens[..tokens.len() - 1];
        let is_known = self.cache.borrow_mut().known(tokens) > self.slots.held(tokens);
        // What is loaded takes the place of what was used longest ago.
        let mut lease = SlotLease::new(self.slots, if is_known { &[] } else { tokens }).await?;
        // Others may have come first while the slot was prepared.
        let mut cache = self.cache.borrow_mut();
        let held = common_prefix(lease.reusable(), tokens);
        let loads = cache.known(tokens) > held;
        cache.keep(context, &lease, if loads { 0 } else { held })?;
        if loads {
            cache.load(context, &mut lease, tokens)?;
        }
        cache.count(loads);
        Ok(lease)
    }

    async fn configured(
        &self,
        mut lease: SlotLease,
        prompt: &Prompt<'_>,
        params: &SequenceParams,
    ) -> Result<SlotLease> {
        let (slot, context) = (&mut *lease, self.transformer.context());
        slot.configure(self.transformer, &params.sampler, &params.rules, &params.ending).await?;
        if params.masked {
            slot.prepare_masks(context).await?;
        }
        slot.configure_logprobs(context, prompt.logprobs).await?;
        Ok(lease)
    }
}
