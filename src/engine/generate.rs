//! A generation: prefill, the tokens as they come, stop conditions, and the text in chunks.
//!
//! Generations decode together (`decoding.rs`): steps are submitted several at once and before the last ones' tokens were read.
//! Those that ran past the end of the text are dropped and never shown. One with speculation decodes by itself, and nothing of it
//! runs ahead of what was read (`speculation.rs`).

use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;
use web_time::Instant;

use super::choosing::Ending;
use super::decoding;
use super::loaded::{Engine, Inner, common_prefix};
use super::run_ahead::{MAX_STEPS, RunAhead, SUBMITS_IN_FLIGHT};
use super::session::{RING, Session};
use super::speculation::{Pass, Speculation};
use crate::error::Result;
use crate::tensor::Readback;
use crate::text::detokenize::StreamDecoder;
use crate::text::sampler::SamplerSettings;
use crate::text::stop::StopStrings;
use crate::text::token_rules::TokenRules;

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
    pub rules: Rc<TokenRules>,
    pub stop: StopStrings,
    pub ignore_eos: bool,
    pub speculation: Option<Speculation>,
    /// The answer continues the prompt's text (a completion) rather than standing for itself (a chat message).
    pub continues: bool,
}

/// A generation under way. Dropping it ends it.
pub struct Generation {
    engine: Rc<Inner>,
    place: Place,
    request: Request,
    decoder: StreamDecoder,
    /// Tokens that were read and are not part of the answer yet.
    read: VecDeque<u32>,
    /// The pass that samples the first token: how many tokens it takes in, and when it began.
    last_pass: Option<(usize, Instant)>,
    /// Tokens of the answer, read so far, and the last of them.
    generated: usize,
    last: Option<u32>,
    cached: usize,
    started: Instant,
    first_token: Option<Instant>,
    cancelled: bool,
    finished: bool,
}

/// Where its session is.
enum Place {
    /// It has none yet, or no longer.
    Nowhere,
    /// With it, while it takes in its prompt.
    Prefill(Box<Session>),
    /// With those that decode together; its number there.
    Decoding(u64),
    /// With it, because it speculates.
    Speculating(Box<Speculating>),
}

/// What decodes by itself.
struct Speculating {
    session: Session,
    speculation: Speculation,
    /// Plain steps that were submitted and not read yet: the tokens of how many.
    in_flight: Option<(Readback, usize)>,
    /// Steps submitted; step k samples the answer's token k.
    steps: usize,
    run_ahead: RunAhead,
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
            place: Place::Nowhere,
            request,
            decoder,
            read: VecDeque::new(),
            last_pass: None,
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
            self.end(true);
        }
        result.map(Some)
    }

    /// Ends the generation with the next chunk.
    pub fn cancel(&mut self) {
        self.cancelled = true;
    }

    async fn advance(&mut self) -> Result<Chunk> {
        if matches!(self.place, Place::Nowhere) && !self.cancelled {
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
            self.end(false);
        }
        Ok(chunk)
    }

    async fn prefill(&mut self) -> Result<()> {
        self.started = Instant::now();
        let engine = self.engine.clone();
        let prompt = self.request.prompt.clone();
        let stops = if self.request.ignore_eos { &[] } else { engine.tokenizer.end_of_generation() };
        let ending = Ending { stops: stops.to_vec(), steps: self.longest() };
        self.place = Place::Prefill(Box::new(engine.take_session(&prompt)?));
        let Place::Prefill(session) = &mut self.place else { bail!(Internal, "a generation without a session") };
        // The last token is always taken in anew: its logits are wanted.
        let common = common_prefix(session.tokens(), &prompt[..prompt.len() - 1]);
        session.truncate(common);
        self.cached = common;
        session.configure(engine.decoder()?, &self.request.sampler, &self.request.rules, &ending).await?;
        let mut done = common;
        while done < prompt.len() {
            let begin = Instant::now();
            let among_others = !engine.decoding.borrow().is_idle();
            let tokens = engine.pace.borrow().part_of(prompt.len() - done, among_others);
            session.prefill(engine.decoder()?, &prompt[done..], tokens)?;
            done += tokens;
            if done < prompt.len() {
                // Bounds what is submitted at once, so that the page gets its frames between the parts, and others their tokens.
                engine.context.device().sync().await?;
                engine.pace.borrow_mut().took(tokens, begin.elapsed());
            } else {
                self.last_pass = Some((tokens, begin));
            }
        }
        let first = session.read_tokens(&engine.context, 0, 1)?;
        let Place::Prefill(session) = std::mem::replace(&mut self.place, Place::Nowhere) else {
            bail!(Internal, "a generation without a session")
        };
        self.place = match self.request.speculation.take() {
            None => {
                let id = engine.decoding.borrow_mut().join(
                    *session,
                    &self.request.sampler,
                    &self.request.rules,
                    ending,
                    first,
                );
                Place::Decoding(id)
            }
            Some(speculation) => Place::Speculating(Box::new(Speculating {
                session: *session,
                speculation,
                in_flight: Some((first, 1)),
                steps: 1,
                run_ahead: RunAhead::default(),
            })),
        };
        Ok(())
    }

    /// The next token, from those that were read, or from the oldest steps in flight.
    async fn next_token(&mut self) -> Result<u32> {
        if self.read.is_empty() {
            let (last, longest) = (self.last, self.longest());
            match &mut self.place {
                Place::Decoding(id) => self.read = decoding::next_tokens(&self.engine, *id).await?,
                Place::Speculating(alone) => self.read = alone.next_tokens(&self.engine, last, longest).await?,
                _ => bail!(Internal, "a generation without a session"),
            }
            if let Some((tokens, begin)) = self.last_pass.take() {
                self.engine.pace.borrow_mut().took(tokens, begin.elapsed());
                // What the activations of many tokens took is not held while the answer is written, or only a part of it.
                let info = &self.engine.info;
                self.engine.context.device().trim_to((info.weight_bytes + info.kv_cache_bytes) / 20);
            }
        }
        match self.read.pop_front() {
            Some(u32::MAX) => bail!(
                NumericalError,
                "the logits of token {} are not numbers (NaN), or nothing but -infinity: the model's weights are broken or \
                 overflow, or the request bans every token",
                self.generated
            ),
            Some(token) => Ok(token),
            None => bail!(Internal, "a token was read back without its bytes"),
        }
    }

    fn take_token(&mut self, token: u32, chunk: &mut Chunk) -> Result<()> {
        self.first_token.get_or_insert_with(Instant::now);
        self.generated += 1;
        self.last = Some(token);
        let ends = self.engine.tokenizer.end_of_generation().contains(&token) && !self.request.ignore_eos;
        if let Place::Speculating(alone) = &mut self.place
            && alone.steps > self.generated
            && !ends
        {
            // What gave the next token, already read, has taken this one into the cache.
            alone.session.decoded(token);
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
        let speculation = match &self.place {
            Place::Speculating(alone) => Some(&alone.speculation),
            _ => self.request.speculation.as_ref(),
        };
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
    fn end(&mut self, forget: bool) {
        self.finished = true;
        self.read.clear();
        let session = match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Nowhere => None,
            Place::Prefill(session) => Some(*session),
            Place::Decoding(id) => self.engine.decoding.borrow_mut().leave(id),
            Place::Speculating(mut alone) => {
                alone.speculation.end(&self.engine, forget);
                Some(alone.session)
            }
        };
        if let Some(mut session) = session {
            if forget {
                session.forget();
            }
            self.engine.give_back(session);
        }
    }
}

impl Speculating {
    /// Verifies a draft, or where there is none reads a few plain steps. It looks at the last token, so nothing runs ahead of
    /// that.
    async fn next_tokens(&mut self, engine: &Inner, last: Option<u32>, longest: usize) -> Result<VecDeque<u32>> {
        if self.in_flight.is_none() {
            let Some(last) = last else { bail!(Internal, "speculation without a first token") };
            let (room, plain_steps) = (longest - self.steps, self.run_ahead.steps_per_submit());
            match self.speculation.advance(engine, &mut self.session, last, self.steps, room, plain_steps).await? {
                Pass::Verified(tokens) => {
                    self.steps += tokens.len();
                    self.run_ahead.arrived(0, Instant::now());
                    return Ok(tokens.into());
                }
                Pass::Steps(readback, steps) => {
                    self.steps += steps;
                    self.in_flight = Some((readback, steps));
                }
            }
        }
        let Some((readback, steps)) = self.in_flight.take() else { bail!(Internal, "no decode step is in flight") };
        let bytes = readback.bytes().await?;
        self.run_ahead.arrived(steps, Instant::now());
        Ok(bytes.iter().flat_map(|bytes| bytemuck::pod_collect_to_vec::<u8, u32>(bytes)).collect())
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.end(false);
    }
}
