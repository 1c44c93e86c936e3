//! One choice of a generation: prefill, the tokens as they come, stop conditions, and the text in chunks.
//!
//! Choices decode together (`decoding.rs`): steps are submitted several at once and before the last ones' tokens were read.
//! Those that ran past the end of the text are dropped and never shown. One with speculation decodes by itself, and nothing of it
//! runs ahead of what was read (`speculation.rs`); neither does one whose logits the caller processes (`logits_processor.rs`).

use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;
use web_time::Instant;

use super::decoding;
use super::loaded::{Inner, common_prefix};
use super::logits_processor::{LogitsProcessor, Processing};
use super::logprobs::{Sampled, TokenLogprobs};
use super::run_ahead::{MAX_STEPS, RunAhead, SUBMITS_IN_FLIGHT};
use super::sampling::Ending;
use super::session::{RING, Session};
use super::speculation::{Pass, Speculation};
use crate::error::Result;
use crate::tensor::{Readback, Tensor};
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

/// A piece of an answer. The last one of each choice has its finish reason, and the last one of all usage and timings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Chunk {
    /// Which of the choices.
    pub index: usize,
    pub text: String,
    pub token_ids: Vec<u32>,
    /// Where they were asked for, one for each of `token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<TokenLogprobs>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// What to generate, after validation.
#[derive(Clone)]
pub(super) struct Request {
    pub prompt: Vec<u32>,
    pub max_tokens: Option<usize>,
    pub sampler: SamplerSettings,
    pub stop: StopStrings,
    pub ignore_eos: bool,
    pub speculation: Option<Speculation>,
    /// Log probabilities come with the tokens: of how many of the most probable ones.
    pub logprobs: Option<usize>,
    /// Changes the logits before each choice.
    pub processor: Option<Rc<dyn LogitsProcessor>>,
    /// How many answers to the prompt.
    pub choices: usize,
    /// The same request is to give the same tokens again: it has a seed.
    pub is_reproducible: bool,
    /// The answer continues the prompt's text (a completion) rather than standing for itself (a chat message).
    pub continues: bool,
}

/// An answer under way. Dropping it ends it.
pub(super) struct Choice {
    engine: Rc<Inner>,
    place: Place,
    request: Request,
    decoder: StreamDecoder,
    /// Tokens that were read and are not part of the answer yet.
    read: VecDeque<Sampled>,
    /// The pass that samples the first token: how many tokens it takes in, and when it began.
    last_pass: Option<(usize, Instant)>,
    /// Tokens of the answer, read so far, and the last of them.
    generated: usize,
    /// Of their text, in UTF-16 code units.
    offset: usize,
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
    /// With it, because its logits are processed.
    Processing(Box<Processing>),
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

/// What the prompt of one choice left for others: their sessions take it over instead of taking it in themselves.
pub(super) struct Prompted {
    /// The number of its session in the cache of all.
    sequence: usize,
    /// Behind the prompt, [1, vocab_size].
    logits: Tensor,
    /// Tokens that the pass took in which gave them.
    advance: usize,
}

impl Choice {
    /// Nothing runs before the first `next`.
    pub fn new(engine: Rc<Inner>, request: Request) -> Self {
        let decoder = match request.continues {
            true => StreamDecoder::continuing(),
            false => StreamDecoder::new(&engine.tokenizer),
        };
        Self {
            engine,
            place: Place::Nowhere,
            request,
            decoder,
            read: VecDeque::new(),
            last_pass: None,
            generated: 0,
            offset: 0,
            last: None,
            cached: 0,
            started: Instant::now(),
            first_token: None,
            cancelled: false,
            finished: false,
        }
    }

    pub fn is_finished(&self) -> bool {
        self.finished
    }

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
        let mut chunk = Chunk { logprobs: self.request.logprobs.map(|_| vec![]), ..Chunk::default() };
        // All that was read makes one chunk. Tokens can be without text of their own: part of a character, or what may become a
        // stop string.
        while chunk.finish_reason.is_none() && (chunk.text.is_empty() || !self.read.is_empty()) {
            if self.cancelled {
                chunk.text.push_str(&self.rest());
                chunk.finish_reason = Some(FinishReason::Cancelled);
                break;
            }
            match self.next_token().await? {
                Some(sampled) => self.take_token(sampled, &mut chunk)?,
                None => self.cancelled = true,
            }
        }
        if chunk.finish_reason.is_some() {
            chunk.usage = Some(self.usage());
            chunk.timings = Some(self.timings());
            self.end(false);
        }
        Ok(chunk)
    }

    /// Takes the prompt in, or over from a choice that did, and lets the first token be sampled. Comes before the first `next`.
    pub async fn begin(&mut self, prompted: Option<&Prompted>) -> Result<Option<Prompted>> {
        let begun = match prompted {
            Some(prompted) => self.adopt(prompted).await.map(|()| None),
            None => self.prefill().await.map(Some),
        };
        if begun.is_err() {
            self.end(true);
        }
        begun
    }

    async fn prefill(&mut self) -> Result<Prompted> {
        let engine = self.engine.clone();
        let prompt = self.request.prompt.clone();
        self.take_session().await?;
        let Place::Prefill(session) = &mut self.place else { bail!(Internal, "a generation without a session") };
        // The last token is always taken in anew: its logits are wanted.
        let mut common = common_prefix(session.tokens(), &prompt[..prompt.len() - 1]);
        if self.request.is_reproducible {
            // Passes over one token round otherwise than those over several, so what the cache happens to hold must not decide which of
            // them a token of the prompt takes.
            common = common.min(session.by_passes()).min(prompt.len().saturating_sub(2));
        }
        session.truncate(common);
        self.cached = common;
        let mut done = common;
        let prompted = loop {
            let begin = Instant::now();
            let among_others = !engine.decoding.borrow().is_idle();
            let rest = prompt.len() - done;
            let mut tokens = engine.pace.borrow().part_of(rest, among_others);
            if self.request.is_reproducible && rest == tokens + 1 {
                tokens -= 1;
            }
            let logits = session.prefill(engine.decoder()?, &prompt[done..], tokens)?;
            done += tokens;
            if let Some(logits) = logits {
                self.last_pass = Some((tokens, begin));
                break Prompted { sequence: session.sequence, logits, advance: tokens };
            }
            // Bounds what is submitted at once, so that the page gets its frames between the parts, and others their tokens.
            engine.context.device().sync().await?;
            engine.pace.borrow_mut().took(tokens, begin.elapsed());
        };
        self.sample_first(&prompted).await?;
        Ok(prompted)
    }

    async fn adopt(&mut self, prompted: &Prompted) -> Result<()> {
        let engine = self.engine.clone();
        self.take_session().await?;
        let Place::Prefill(session) = &mut self.place else { bail!(Internal, "a generation without a session") };
        session.adopt(&engine.context, &self.request.prompt, prompted.sequence, prompted.advance)?;
        self.cached = self.request.prompt.len();
        self.sample_first(prompted).await
    }

    /// A session with the settings of this choice.
    async fn take_session(&mut self) -> Result<()> {
        self.started = Instant::now();
        let engine = self.engine.clone();
        self.place = Place::Prefill(Box::new(engine.take_session(&self.request.prompt)?));
        let ending = self.ending();
        let Place::Prefill(session) = &mut self.place else { bail!(Internal, "a generation without a session") };
        session.configure(engine.decoder()?, &self.request.sampler, &ending).await?;
        // Of processed logits the CPU has what it takes.
        let logprobs = self.request.logprobs.filter(|_| self.request.processor.is_none());
        session.configure_logprobs(&engine.context, logprobs).await
    }

    fn ending(&self) -> Ending {
        let stops = if self.request.ignore_eos { &[] } else { self.engine.tokenizer.end_of_generation() };
        Ending { stops: stops.to_vec(), steps: self.longest() }
    }

    /// Lets the first token be sampled and goes on to where the others come from.
    async fn sample_first(&mut self, prompted: &Prompted) -> Result<()> {
        let engine = self.engine.clone();
        let Place::Prefill(session) = &mut self.place else { bail!(Internal, "a generation without a session") };
        if self.request.processor.is_none() {
            session.sample_first(&engine.context, &prompted.logits, prompted.advance)?;
        }
        let ending = self.ending();
        let Place::Prefill(session) = std::mem::replace(&mut self.place, Place::Nowhere) else {
            bail!(Internal, "a generation without a session")
        };
        let session = *session;
        self.place = match (self.request.speculation.take(), &self.request.processor) {
            (None, None) => {
                let first = session.read_tokens(&engine.context, 0, 1)?;
                let id = engine.decoding.borrow_mut().join(session, &self.request.sampler, ending, first);
                Place::Decoding(id)
            }
            (None, Some(processor)) => {
                let processor = processor.clone();
                let (logits, advance) = (prompted.logits.clone(), prompted.advance);
                Place::Processing(Box::new(Processing::new(session, processor, self.request.logprobs, logits, advance)))
            }
            (Some(speculation), _) => Place::Speculating(Box::new(Speculating {
                in_flight: Some((session.read_tokens(&engine.context, 0, 1)?, 1)),
                session,
                speculation,
                steps: 1,
                run_ahead: RunAhead::default(),
            })),
        };
        Ok(())
    }

    /// The next token, from those that were read, or from the oldest steps in flight. None where the caller cancelled meanwhile.
    async fn next_token(&mut self) -> Result<Option<Sampled>> {
        if self.read.is_empty() {
            let (last, longest) = (self.last, self.longest());
            match &mut self.place {
                Place::Decoding(id) => self.read = decoding::next_tokens(&self.engine, *id).await?,
                Place::Speculating(alone) => {
                    let tokens = alone.next_tokens(&self.engine, last, longest).await?;
                    self.read = tokens.into_iter().map(Sampled::from).collect();
                }
                Place::Processing(alone) => match alone.next_token(&self.engine, last).await? {
                    Some(sampled) => self.read.push_back(sampled),
                    None => return Ok(None),
                },
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
            Some(Sampled { token: u32::MAX, .. }) => bail!(
                NumericalError,
                "the logits of token {} are not numbers (NaN); the model's weights are broken or overflow",
                self.generated
            ),
            Some(sampled) => Ok(Some(sampled)),
            None => bail!(Internal, "a token was read back without its bytes"),
        }
    }

    fn take_token(&mut self, Sampled { token, logprobs }: Sampled, chunk: &mut Chunk) -> Result<()> {
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
        if let (Some(logprobs), Some(all)) = (logprobs, &mut chunk.logprobs) {
            all.push(TokenLogprobs::new(&self.engine.tokenizer, token, &logprobs, self.offset));
        }
        if ends {
            chunk.text.push_str(&self.rest());
            chunk.finish_reason = Some(FinishReason::Stop);
            return Ok(());
        }
        let piece = self.decoder.push(&self.engine.tokenizer, token)?;
        self.offset += piece.encode_utf16().count();
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
            Place::Processing(alone) => Some(alone.end()),
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

impl Drop for Choice {
    fn drop(&mut self) {
        self.end(false);
    }
}
