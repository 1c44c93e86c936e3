//! A generation: one or several answers to a prompt. Choice i draws its tokens with the request's seed + i.
//!
//! The first choice takes the prompt in. Others copy it from the first one's slot, as many as there are free slots, and all decode together
//! (`decode/scheduler.rs`). The rest begin as slots become free, and find the prompt in them.

use std::collections::VecDeque;
use std::rc::Rc;

use futures_util::future::join_all;
use web_time::Instant;

use super::api::chunk::{Chunk, Timings, Usage};
use super::choice::{Choice, Request};
use super::engine::{Engine, Inner};
use super::replay::{Replay, ReplayedChoice};
use crate::decode::conflicts::{self, Feature};
use crate::decode::{Canceller, LogitsProcessor, Patience};
use crate::error::{Code, Result};

/// A generation under way. Dropping it ends it.
pub struct Generation {
    engine: Rc<Inner>,
    request: Request,
    /// What is known of the choices.
    replayed: Vec<ReplayedChoice>,
    /// The next choice to begin, if it is prepared.
    prepared: Option<Choice>,
    /// Choices that have begun and go on, with their index.
    running: Vec<(usize, Choice)>,
    begun: usize,
    /// The number of choices that ran when there was no room for one more.
    crowded_by: Option<usize>,
    /// Chunks that nobody has taken.
    ready: VecDeque<Chunk>,
    /// Of the choices that have ended.
    usage: Usage,
    timings: Option<Timings>,
    first_chunk: Option<Instant>,
    canceller: Canceller,
    is_over: bool,
}

impl Engine {
    /// Checks what can be checked now; nothing runs before the first `next`.
    pub(super) fn start(&self, request: Request) -> Result<Generation> {
        let capacity = self.0.info.context_length;
        let prompt_tokens = request.prompt_tokens();
        if prompt_tokens == 0 {
            bail!(InvalidRequest, "the prompt has no tokens, wanted at least one");
        }
        // At least one position must be left for the answer, which an encoder's text takes none of.
        if prompt_tokens > capacity || request.prompt.len() >= capacity {
            bail!(
                ContextLengthExceeded,
                "the prompt has {prompt_tokens} tokens, and the context holds {capacity}; shorten the messages or load with a larger \
                 contextLength"
            );
        }
        conflicts::check(&request.features())?;
        let usage = Usage { prompt_tokens, ..Usage::default() };
        Ok(Generation {
            engine: self.0.clone(),
            request,
            replayed: Vec::new(),
            prepared: None,
            running: Vec::new(),
            begun: 0,
            crowded_by: None,
            ready: VecDeque::new(),
            usage,
            timings: None,
            first_chunk: None,
            canceller: Canceller::default(),
            is_over: false,
        })
    }
}

impl Generation {
    /// Lets a function change the logits before each choice of a token. Call it before the first `next`. With `speculation` it is
    /// `invalid_request`.
    pub fn with_logits_processor(mut self, processor: Rc<dyn LogitsProcessor>) -> Result<Self> {
        let mut features = self.request.features();
        features.push((Feature::LogitsProcessor, "a logits processor"));
        conflicts::check(&features)?;
        self.request.processor = Some(processor);
        Ok(self)
    }

    /// Generates an answer again. Call it before the first `next`.
    pub fn with_replay(mut self, Replay { seed, choices }: Replay) -> Result<Self> {
        if choices.len() > self.request.choices {
            bail!(
                InvalidRequest,
                "the replay has {} choices, and the request asks for {}",
                choices.len(),
                self.request.choices
            );
        }
        let vocab_size = self.engine.info.vocab_size;
        if let Some(token) =
            choices.iter().flat_map(|choice| &choice.tokens).find(|token| **token as usize >= vocab_size)
        {
            bail!(OutOfRange, "the replay has token {token}, and the model's are below {vocab_size}");
        }
        if !self.request.is_reproducible {
            self.request.sampler.seed = u64::from(seed);
        }
        self.replayed = choices;
        Ok(self)
    }

    /// Compiles the request's grammar, so that its errors come before anything is generated. Otherwise `next` does it.
    pub async fn prepare(&mut self) -> Result<()> {
        if self.begun == 0 && self.prepared.is_none() {
            let mut first = self.choice(0);
            first.prepare().await?;
            self.prepared = Some(first);
        }
        Ok(())
    }

    fn choice(&self, index: usize) -> Choice {
        let mut request = self.request.clone();
        request.sampler.seed = request.sampler.seed.wrapping_add(index as u64);
        let known = |choice: &&ReplayedChoice| choice.is_finished || !choice.tokens.is_empty();
        request.replayed = self.replayed.get(index).filter(known).cloned();
        Choice::new(self.engine.clone(), request, self.canceller.clone())
    }

    /// The next piece of one of the answers, `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Chunk>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(Some(chunk));
            }
            if self.is_over {
                return Ok(None);
            }
            if let Err(error) = self.advance().await {
                // An error of one choice ends all; the others give their slots back.
                self.is_over = true;
                self.ready.clear();
                self.running.clear();
                return Err(self.engine.explain(error));
            }
        }
    }

    /// Ends the generation: the next chunk of each choice is its last.
    pub fn cancel(&self) {
        self.canceller.cancel();
    }

    /// What ends the generation while `next` is waited for: it takes effect between two passes over the prompt, or with the next token.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// A chunk of each choice that runs.
    async fn advance(&mut self) -> Result<()> {
        self.begin().await?;
        let next = self.running.iter_mut().map(|(index, choice)| async move { (*index, choice.next().await) });
        for (index, chunk) in join_all(next).await {
            if let Some(chunk) = chunk? {
                self.first_chunk.get_or_insert_with(Instant::now);
                let chunk = self.without_totals(Chunk { index, ..chunk });
                self.ready.push_back(chunk);
            }
        }
        self.running.retain(|(_, choice)| !choice.is_finished());
        if self.running.is_empty() && self.begun == self.request.choices {
            self.is_over = true;
            let totals = (self.usage, self.totals());
            if let Some(last) = self.ready.back_mut() {
                (last.usage, last.timings) = (Some(totals.0), totals.1);
            }
        }
        Ok(())
    }

    /// Begins choices while slots are free.
    async fn begin(&mut self) -> Result<()> {
        let mut prompted = None;
        while self.begun < self.request.choices {
            let is_first = self.running.is_empty();
            // If none runs, the choice waits for a slot by itself. Otherwise it begins only if one is free.
            if !is_first && !self.canceller.is_cancelled() && !self.engine.decoder()?.has_free_slot() {
                break;
            }
            // One that found no room tries again when another has ended.
            if !is_first && self.crowded_by.is_some_and(|choices| choices <= self.running.len()) {
                break;
            }
            let index = self.begun;
            let mut choice = self.prepared.take().unwrap_or_else(|| self.choice(index));
            if !self.canceller.is_cancelled() {
                let patience = if is_first { Patience::Waits(self.canceller.clone()) } else { Patience::Fails };
                match choice.begin(prompted.as_ref(), patience).await {
                    Err(error) if !is_first && error.code() == Code::OutOfMemory => {
                        self.crowded_by = Some(self.running.len());
                        break;
                    }
                    begun => prompted = begun?.or(prompted),
                }
            }
            self.begun += 1;
            self.running.push((index, choice));
        }
        Ok(())
    }

    /// Adds usage and timings to those of all choices, which come with the last chunk. What they say of the prompt is the first choice's,
    /// which took it in, even if another one ended earlier.
    fn without_totals(&mut self, mut chunk: Chunk) -> Chunk {
        if let Some(usage) = chunk.usage.take() {
            self.usage.completion_tokens += usage.completion_tokens;
            let (all, own) = (&mut self.usage.completion_tokens_details, usage.completion_tokens_details);
            all.reasoning_tokens += own.reasoning_tokens;
            if chunk.index == 0 {
                self.usage.prompt_tokens_details = usage.prompt_tokens_details;
            }
            self.usage.total_tokens = self.usage.prompt_tokens + self.usage.completion_tokens;
        }
        if let Some(timings) = chunk.timings.take() {
            let add = |a: Option<usize>, b: Option<usize>| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
            self.timings = Some(match self.timings {
                None => timings,
                Some(before) => Timings {
                    draft_tokens: add(before.draft_tokens, timings.draft_tokens),
                    accepted_draft_tokens: add(before.accepted_draft_tokens, timings.accepted_draft_tokens),
                    context_shifts: add(before.context_shifts, timings.context_shifts),
                    dropped_tokens: add(before.dropped_tokens, timings.dropped_tokens),
                    forced_tokens: add(before.forced_tokens, timings.forced_tokens),
                    missed_masks: add(before.missed_masks, timings.missed_masks),
                    dropped_steps: add(before.dropped_steps, timings.dropped_steps),
                    ..if chunk.index == 0 { timings } else { before }
                },
            });
        }
        chunk
    }

    /// The timings of all choices: several decode from the first chunk until now.
    fn totals(&self) -> Option<Timings> {
        let timings = self.timings?;
        if self.request.choices == 1 {
            return Some(timings);
        }
        let decode_ms = self.first_chunk.map_or(0.0, |first| first.elapsed().as_secs_f64() * 1e3);
        let decoded = self.usage.completion_tokens.saturating_sub(self.request.choices);
        let tokens_per_s = if decode_ms > 0.0 { decoded as f64 * 1e3 / decode_ms } else { 0.0 };
        Some(Timings { decode_ms, tokens_per_s, ..timings })
    }
}
