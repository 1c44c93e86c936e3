//! The decode loop: prefill, steps in flight, stop conditions, and the text in chunks.
//!
//! Steps are submitted several at once and before the last ones' tokens were read (`run_ahead.rs`). Those that ran past the end
//! of the text are dropped and never shown. With speculation nothing runs ahead of what was read (`speculation.rs`).

use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;
use web_time::Instant;

use super::load::{Engine, Inner};
use super::run_ahead::{MAX_STEPS, RunAhead, SUBMITS_IN_FLIGHT};
use super::sampling::Ending;
use super::session::{RING, Session};
use super::speculation::{Pass, Speculation};
use crate::error::Result;
use crate::tensor::Readback;
use crate::text::detokenize::StreamDecoder;
use crate::text::sampler::SamplerSettings;
use crate::text::stop::StopStrings;

// A slot of the ring is read before a later step writes it.
const _: () = assert!(SUBMITS_IN_FLIGHT * MAX_STEPS < RING);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model ended its turn, or a stop string came.
    Stop,
    /// `max_tokens` or the context is used up.
    Length,
    /// The caller cancelled.
    Cancelled,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// From the start to the first token.
    pub prompt_ms: f64,
    pub prompt_tokens_per_s: f64,
    /// From the first token to the last.
    pub decode_ms: f64,
    pub tokens_per_s: f64,
    /// Tokens of the prompt that the KV cache already held.
    pub cached_prompt_tokens: usize,
    /// With speculation: tokens of drafts that were verified, and those of them that were right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_draft_tokens: Option<usize>,
}

/// A piece of the answer. The last one has the finish reason, usage and timings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chunk {
    pub text: String,
    pub token_ids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// What to generate, after validation.
pub(super) struct Request {
    pub prompt: Vec<u32>,
    pub max_tokens: Option<usize>,
    pub sampler: SamplerSettings,
    pub stop: StopStrings,
    pub ignore_eos: bool,
    pub speculation: Option<Speculation>,
    /// The answer continues the prompt's text (a completion) rather than standing for itself (a chat message).
    pub continues: bool,
}

/// A generation under way. Dropping it ends it.
pub struct Generation {
    engine: Rc<Inner>,
    /// Ours while the generation runs.
    session: Option<Session>,
    request: Request,
    decoder: StreamDecoder,
    /// What was submitted and not read yet: the tokens of how many steps.
    in_flight: VecDeque<(Readback, usize)>,
    /// Tokens that were read and are not part of the answer yet.
    read: VecDeque<u32>,
    run_ahead: RunAhead,
    /// The pass that samples the first token: how many tokens it takes in, and when it began.
    last_pass: Option<(usize, Instant)>,
    /// Steps submitted; step k samples the answer's token k.
    steps: usize,
    /// Tokens of the answer, read so far, and the last of them.
    generated: usize,
    last: Option<u32>,
    cached: usize,
    started: Instant,
    first_token: Option<Instant>,
    cancelled: bool,
    finished: bool,
}

impl Engine {
    /// Checks what can be checked now; nothing runs before the first `next`.
    pub(super) fn start(&self, request: Request) -> Result<Generation> {
        let capacity = self.0.info.context_length;
        if request.prompt.is_empty() {
            bail!(InvalidRequest, "the prompt has no tokens, wanted at least one");
        }
        // One place is left, or nothing could be said.
        if request.prompt.len() >= capacity {
            bail!(
                ContextLengthExceeded,
                "the prompt has {} tokens, and the context holds {capacity}; shorten the messages or load with a larger \
                 contextLength",
                request.prompt.len()
            );
        }
        let decoder = match request.continues {
            true => StreamDecoder::continuing(),
            false => StreamDecoder::new(&self.0.tokenizer),
        };
        Ok(Generation {
            engine: self.0.clone(),
            session: None,
            request,
            decoder,
            in_flight: VecDeque::new(),
            read: VecDeque::new(),
            run_ahead: RunAhead::default(),
            last_pass: None,
            steps: 0,
            generated: 0,
            last: None,
            cached: 0,
            started: Instant::now(),
            first_token: None,
            cancelled: false,
            finished: false,
        })
    }
}

impl Generation {
    /// The next piece of the answer, `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Chunk>> {
        if self.finished {
            return Ok(None);
        }
        let result = self.advance().await;
        if result.is_err() {
            // What the cache holds after an error is not known.
            if let Some(session) = &mut self.session {
                session.forget();
            }
            self.finish();
        }
        result.map(Some)
    }

    /// Ends the generation with the next chunk.
    pub fn cancel(&mut self) {
        self.cancelled = true;
    }

    async fn advance(&mut self) -> Result<Chunk> {
        if self.session.is_none() && !self.cancelled {
            self.prefill().await?;
        }
        let mut chunk =
            Chunk { text: String::new(), token_ids: vec![], finish_reason: None, usage: None, timings: None };
        // All that was read makes one chunk. Tokens can be without text of their own: part of a character, or what may become a
        // stop string.
        while chunk.finish_reason.is_none() && (chunk.text.is_empty() || !self.read.is_empty()) {
            if self.cancelled {
                chunk.text.push_str(&self.rest());
                chunk.finish_reason = Some(FinishReason::Cancelled);
                break;
            }
            let token = self.next_token().await?;
            self.take_token(token, &mut chunk)?;
        }
        if chunk.finish_reason.is_some() {
            chunk.usage = Some(self.usage());
            chunk.timings = Some(self.timings());
            self.finish();
        }
        Ok(chunk)
    }

    async fn prefill(&mut self) -> Result<()> {
        self.started = Instant::now();
        let stops = if self.request.ignore_eos { &[] } else { self.engine.tokenizer.end_of_generation() };
        let ending = Ending { stops: stops.to_vec(), steps: self.longest() };
        let session = self.session.insert(self.engine.take_session()?);
        let prompt = &self.request.prompt;
        // The last token is always taken in anew: its logits are wanted.
        let common = session.tokens().iter().zip(&prompt[..prompt.len() - 1]).take_while(|(a, b)| a == b).count();
        session.truncate(common);
        self.cached = common;
        session.configure(&self.engine.context, &self.request.sampler, &ending).await?;
        let mut done = common;
        while done < prompt.len() {
            let begin = Instant::now();
            let tokens = session.prefill(&self.engine, &prompt[done..])?;
            done += tokens;
            if done < prompt.len() {
                // Bounds what is submitted at once, so that the page gets its frames between the parts.
                self.engine.context.device().sync().await?;
                session.pace().took(tokens, begin.elapsed());
            } else {
                self.last_pass = Some((tokens, begin));
            }
        }
        self.in_flight.push_back((session.read_tokens(&self.engine.context, 0, 1)?, 1));
        self.steps = 1;
        Ok(())
    }

    /// The next token, from those that were read, or from the oldest steps in flight.
    async fn next_token(&mut self) -> Result<u32> {
        if self.read.is_empty() {
            match self.request.speculation {
                None => self.submit()?,
                Some(_) if self.in_flight.is_empty() => self.speculate().await?,
                Some(_) => {}
            }
        }
        if self.read.is_empty() {
            let Some((oldest, steps)) = self.in_flight.pop_front() else {
                bail!(Internal, "no decode step is in flight")
            };
            for bytes in oldest.bytes().await? {
                self.read.extend(bytemuck::pod_collect_to_vec::<u8, u32>(&bytes));
            }
            self.run_ahead.arrived(steps, Instant::now());
            if let (Some((tokens, begin)), Some(session)) = (self.last_pass.take(), &mut self.session) {
                session.pace().took(tokens, begin.elapsed());
                // What the activations of many tokens took is not held while the answer is written, or only a part of it.
                let info = &self.engine.info;
                self.engine.context.device().trim_to((info.weight_bytes + info.kv_cache_bytes) / 20);
            }
        }
        match self.read.pop_front() {
            Some(u32::MAX) => bail!(
                NumericalError,
                "the logits of token {} are not numbers (NaN); the model's weights are broken or overflow",
                self.generated
            ),
            Some(token) => Ok(token),
            None => bail!(Internal, "a token was read back without its bytes"),
        }
    }

    /// Keeps steps in flight.
    fn submit(&mut self) -> Result<()> {
        let Some(session) = &self.session else { bail!(Internal, "a generation without a session") };
        let context = &self.engine.context;
        while self.in_flight.len() < SUBMITS_IN_FLIGHT && self.steps < self.longest() {
            let steps = self.run_ahead.steps_per_submit().min(self.longest() - self.steps);
            for _ in 0..steps {
                session.step(context)?;
            }
            self.in_flight.push_back((session.read_tokens(context, self.steps, steps)?, steps));
            self.steps += steps;
        }
        Ok(())
    }

    /// Verifies a draft, or where there is none keeps a few plain steps in flight. It looks at the last token, so nothing runs
    /// ahead of that.
    async fn speculate(&mut self) -> Result<()> {
        let room = self.longest() - self.steps;
        let (Some(speculation), Some(session), Some(last)) =
            (&mut self.request.speculation, &mut self.session, self.last)
        else {
            bail!(Internal, "speculation without a first token")
        };
        let plain_steps = self.run_ahead.steps_per_submit();
        match speculation.advance(&self.engine, session, last, self.steps, room, plain_steps).await? {
            Pass::Verified(tokens) => {
                self.steps += tokens.len();
                self.read.extend(tokens);
                self.run_ahead.arrived(0, Instant::now());
            }
            Pass::Steps(readback, steps) => {
                self.steps += steps;
                self.in_flight.push_back((readback, steps));
            }
        }
        Ok(())
    }

    fn take_token(&mut self, token: u32, chunk: &mut Chunk) -> Result<()> {
        self.first_token.get_or_insert_with(Instant::now);
        self.generated += 1;
        self.last = Some(token);
        let Some(session) = &mut self.session else { bail!(Internal, "a generation without a session") };
        let ends = self.engine.tokenizer.end_of_generation().contains(&token) && !self.request.ignore_eos;
        if self.steps > self.generated && !ends {
            // What gives the next token, already submitted, takes this one into the cache.
            session.decoded(token);
        }
        chunk.token_ids.push(token);
        if ends {
            chunk.text.push_str(&self.rest());
            chunk.finish_reason = Some(FinishReason::Stop);
            return Ok(());
        }
        let piece = self.decoder.push(&self.engine.tokenizer, token)?;
        let progress = self.request.stop.push(&piece);
        chunk.text.push_str(&progress.text);
        if progress.matched.is_some() {
            chunk.finish_reason = Some(FinishReason::Stop);
        } else if self.generated >= self.longest() {
            let rest = self.rest();
            chunk.text.push_str(&rest);
            chunk.finish_reason = Some(FinishReason::Length);
        }
        Ok(())
    }

    /// The most tokens that this generation can have.
    fn longest(&self) -> usize {
        // `start` made sure that the prompt is shorter than the context.
        self.request.max_tokens.unwrap_or(usize::MAX).min(self.engine.info.context_length - self.request.prompt.len())
    }

    /// Text that was held back.
    fn rest(&mut self) -> String {
        let tail = self.decoder.finish();
        let mut rest = self.request.stop.push(&tail);
        if rest.matched.is_none() {
            rest.text.push_str(&self.request.stop.finish().text);
        }
        rest.text
    }

    fn usage(&self) -> Usage {
        let (prompt_tokens, completion_tokens) = (self.request.prompt.len(), self.generated);
        Usage { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
    }

    fn timings(&self) -> Timings {
        let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        let (prompt_ms, decode_ms) = (ms(self.started, first), ms(first, now));
        let speculation = self.request.speculation.as_ref();
        let per_second = |tokens: usize, ms: f64| if ms > 0.0 { tokens as f64 * 1e3 / ms } else { 0.0 };
        Timings {
            prompt_ms,
            prompt_tokens_per_s: per_second(self.request.prompt.len() - self.cached, prompt_ms),
            decode_ms,
            tokens_per_s: per_second(self.generated.saturating_sub(1), decode_ms),
            cached_prompt_tokens: self.cached,
            draft_tokens: speculation.map(|speculation| speculation.draft_tokens),
            accepted_draft_tokens: speculation.map(|speculation| speculation.accepted_draft_tokens),
        }
    }

    /// Gives the session back. Steps that are still in flight write behind the tokens that it vouches for.
    fn finish(&mut self) {
        self.finished = true;
        self.in_flight.clear();
        self.read.clear();
        if let Some(session) = self.session.take() {
            *self.engine.session.borrow_mut() = Some(session);
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.finish();
    }
}
