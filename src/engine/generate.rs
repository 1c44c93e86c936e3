//! One choice of a generation: prefill, the tokens as they come, stop conditions, and the text in chunks.
//!
//! Choices decode together (`decoding.rs`): steps are submitted several at once and before the last ones' tokens were read.
//! Those that ran past the end of the text are dropped and never shown. One with speculation decodes by itself, and nothing of it
//! runs ahead of what was read (`speculation.rs`); neither does one whose logits the caller processes (`logits_processor.rs`).

use std::collections::VecDeque;
use std::rc::Rc;

use web_time::Instant;

use super::api::answer::{AnswerReader, AnswerRequest};
use super::api::chunk::{Chunk, CompletionTokensDetails, FinishReason, PromptTokensDetails, Timings, Usage};
use super::api::logprobs::TokenLogprobs;
use super::api::request::GrammarRequest;
use super::constrained::{Constrained, Following};
use super::constraint::Constraint;
use super::context_shift::ContextShift;
use super::decoding;
use super::loaded::{Inner, common_prefix};
use super::logits_processor::{LogitsProcessor, Processing};
use super::reasoning_budget::{Budget, ReasoningBudget};
use super::run_ahead::{MAX_STEPS, SUBMITS_IN_FLIGHT};
use super::session::{ContextShifts, Session};
use super::speculating::Speculating;
use super::speculation::Speculation;
use crate::error::Result;
use crate::sampler::{Ending, RING, Sampled, SamplerSettings, TokenRules};
use crate::tensor::Tensor;
use crate::text::answer::AnswerSettings;
use crate::text::detokenize::StreamDecoder;
use crate::text::tools::End;

// A slot of the ring is read before a later step writes it.
const _: () = assert!(SUBMITS_IN_FLIGHT * MAX_STEPS < RING);

/// What to generate, after validation.
#[derive(Clone)]
pub(super) struct Request {
    pub prompt: Vec<u32>,
    pub max_tokens: Option<usize>,
    pub sampler: SamplerSettings,
    pub rules: Rc<TokenRules>,
    /// How it is read, and what ends it.
    pub answer: AnswerRequest,
    /// The most tokens of reasoning.
    pub budget: Option<Budget>,
    pub ignore_eos: bool,
    pub speculation: Option<Speculation>,
    /// Goes on where the context is full.
    pub context_shift: Option<ContextShift>,
    /// What the answer is held to.
    pub grammar: Option<GrammarRequest>,
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
    /// The request's grammar, compiled, until decoding has it.
    constraint: Option<Following>,
    /// The grammar left no choice at all: the answer is what was read.
    is_known: bool,
    decoder: StreamDecoder,
    reader: AnswerReader,
    /// Tokens that end the answer.
    ends: Vec<u32>,
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
    /// With it, because a grammar looks at each token.
    Constrained(Box<Constrained>),
}

/// What the prompt of one choice left for others: their sessions take it over instead of taking it in themselves.
pub(super) struct Prompted {
    /// The number of its session in the cache of all.
    pub sequence: usize,
    /// Behind the prompt, [1, vocab_size].
    logits: Tensor,
    /// Tokens that the pass took in which gave them.
    pub advance: usize,
    /// As of its session.
    pub by_passes: usize,
}

/// What an answer begins with.
struct Opening {
    constraint: Option<Following>,
    forced: Vec<u32>,
}

impl Choice {
    /// Nothing runs before the first `next`.
    pub fn new(engine: Rc<Inner>, request: Request) -> Self {
        // What a grammar admits is the text to the letter.
        let is_whole = request.grammar.as_ref().is_some_and(|asked| asked.is_whole);
        let decoder = if request.continues || is_whole {
            StreamDecoder::continuing()
        } else {
            StreamDecoder::new(&engine.tokenizer)
        };
        let decoder = decoder.showing(request.answer.visible.clone());
        let reader = AnswerReader::new(request.answer.clone());
        let ends = ends(&engine, &request);
        Self {
            engine,
            place: Place::Nowhere,
            request,
            constraint: None,
            is_known: false,
            decoder,
            reader,
            ends,
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

    /// Does what is to be done before anything is generated, and can go wrong: compiles the request's grammar. `next` does it where
    /// nobody has.
    pub async fn prepare(&mut self) -> Result<()> {
        if self.constraint.is_some() || !matches!(self.place, Place::Nowhere) {
            return Ok(());
        }
        if let Some(asked) = &self.request.grammar {
            self.constraint = Some(self.engine.follow(asked).await?);
        }
        if let Some(budget) = self.request.budget.take() {
            let settings = AnswerSettings { tools: None, ..self.request.answer.settings.clone() };
            let tokenizer = self.engine.tokenizer.clone();
            let decoder = self.decoder.clone();
            let grammar = self.constraint.take().map(|following| following.constraint);
            let budget = ReasoningBudget::new(tokenizer, decoder, settings, budget, self.ends.clone(), grammar);
            self.constraint = Some(Following { constraint: Box::new(budget), grammar: None });
        }
        Ok(())
    }

    /// Ends the generation with the next chunk.
    pub fn cancel(&mut self) {
        self.cancelled = true;
    }

    async fn advance(&mut self) -> Result<Chunk> {
        let mut chunk = Chunk { logprobs: self.request.logprobs.map(|_| vec![]), ..Chunk::default() };
        // All that was read makes one chunk. Tokens can be without text of their own: part of a character, or what may become a
        // stop string.
        while chunk.finish_reason.is_none() && (chunk.says_nothing() || !self.read.is_empty()) {
            if self.cancelled {
                chunk.finish_reason = Some(self.finish(End::Cut, FinishReason::Cancelled, &mut chunk));
                break;
            }
            if self.is_complete() {
                // The grammar admits the empty text alone.
                chunk.finish_reason = Some(self.finish(End::Complete, FinishReason::Stop, &mut chunk));
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

    /// Takes the prompt in, or over from a choice that did, and lets the first token be sampled. Comes before the first `next`. What the
    /// prompt left is for other choices; nothing where a grammar leaves nothing to be sampled.
    pub async fn begin(&mut self, prompted: Option<&Prompted>) -> Result<Option<Prompted>> {
        let begun = match prompted {
            Some(prompted) => self.adopt(prompted).await.map(|()| None),
            None => self.prefill().await,
        };
        if begun.is_err() {
            self.end(true);
        }
        begun
    }

    async fn prefill(&mut self) -> Result<Option<Prompted>> {
        self.started = Instant::now();
        let engine = self.engine.clone();
        let Some(opening) = self.opening().await? else { return Ok(None) };
        let prompt = [&self.request.prompt, &opening.forced[..]].concat();
        let is_reproducible = self.request.is_reproducible;
        let session = self.take_session(&prompt, opening.constraint.is_some()).await?;
        // The last token is always taken in anew: its logits are wanted.
        let mut common = common_prefix(session.reusable(), &prompt[..prompt.len() - 1]);
        if is_reproducible {
            // Passes over one token round otherwise than those over several, so what the cache happens to hold must not decide which of
            // them a token of the prompt takes.
            common = common.min(session.by_passes()).min(prompt.len().saturating_sub(2));
        }
        session.truncate(common);
        self.cached = common.min(self.request.prompt.len());
        let mut done = common;
        let (logits, advance) = loop {
            let begin = Instant::now();
            let among_others = !engine.decoding.borrow().is_idle();
            let rest = prompt.len() - done;
            let mut tokens = engine.pace.borrow().part_of(rest, among_others);
            if is_reproducible && rest == tokens + 1 {
                tokens -= 1;
            }
            let Place::Prefill(session) = &mut self.place else { bail!(Internal, "a generation without a session") };
            if tokens == rest {
                let logits = session.pass(engine.decoder()?, &prompt[done..], opening.forced.len())?;
                self.last_pass = Some((tokens, begin));
                break (logits, tokens);
            }
            session.prefill(engine.decoder()?, &prompt[done..done + tokens])?;
            done += tokens;
            // Bounds what is submitted at once, so that the page gets its frames between the parts, and others their tokens.
            engine.context.device().sync().await?;
            engine.pace.borrow_mut().took(tokens, begin.elapsed());
        };
        let Place::Prefill(session) = &self.place else { bail!(Internal, "a generation without a session") };
        let by_passes = session.by_passes();
        let prompted = Prompted { sequence: session.sequence, logits, advance, by_passes };
        self.go_on(&prompted, opening)?;
        Ok(Some(prompted))
    }

    async fn adopt(&mut self, prompted: &Prompted) -> Result<()> {
        self.started = Instant::now();
        let engine = self.engine.clone();
        let Some(opening) = self.opening().await? else { return Ok(()) };
        let prompt = [&self.request.prompt, &opening.forced[..]].concat();
        self.cached = self.request.prompt.len();
        let session = self.take_session(&prompt, opening.constraint.is_some()).await?;
        session.adopt(&engine.context, &prompt, opening.forced.len(), prompted)?;
        self.go_on(prompted, opening)
    }

    /// What the answer begins with by its grammar. None where that is all of it.
    async fn opening(&mut self) -> Result<Option<Opening>> {
        self.prepare().await?;
        let mut constraint = self.constraint.take();
        let (forced, is_all) = match &mut constraint {
            // Of each token log probabilities are wanted, so each is chosen, be it from a single one.
            Some(_) if self.request.logprobs.is_some() => (Vec::new(), false),
            Some(following) => self.forced(&mut *following.constraint)?,
            None => (Vec::new(), false),
        };
        if is_all || forced.len() == self.longest() {
            (self.read, self.is_known) = (forced.into_iter().map(Sampled::from).collect(), is_all);
            return Ok(None);
        }
        Ok(Some(Opening { constraint, forced }))
    }

    /// A session with the settings of this choice.
    async fn take_session(&mut self, prompt: &[u32], masks: bool) -> Result<&mut Session> {
        let engine = self.engine.clone();
        self.place = Place::Prefill(Box::new(engine.take_session(prompt)?));
        let ending = self.ending();
        let Place::Prefill(session) = &mut self.place else { bail!(Internal, "a generation without a session") };
        session.configure(engine.decoder()?, &self.request.sampler, &self.request.rules, &ending).await?;
        if masks {
            session.prepare_masks(&engine.context).await?;
        }
        // Of processed logits the CPU has what it takes.
        let logprobs = self.request.logprobs.filter(|_| self.request.processor.is_none());
        session.configure_logprobs(&engine.context, logprobs).await?;
        Ok(session)
    }

    fn ending(&self) -> Ending {
        Ending { stops: self.ends.clone(), steps: self.longest() }
    }

    /// From the logits behind the prompt to where the tokens come from.
    fn go_on(&mut self, prompted: &Prompted, opening: Opening) -> Result<()> {
        let engine = self.engine.clone();
        let ending = self.ending();
        let Place::Prefill(session) = std::mem::replace(&mut self.place, Place::Nowhere) else {
            bail!(Internal, "a generation without a session")
        };
        let session = *session;
        let Prompted { logits, advance, .. } = prompted;
        if let Some(following) = opening.constraint {
            let last = opening.forced.last().or(self.request.prompt.last()).copied().unwrap_or_default();
            let (logits, steps) = ((logits.clone(), *advance), opening.forced.len());
            self.read = opening.forced.into_iter().map(Sampled::from).collect();
            let constrained = Constrained::new(&engine, session, following, logits, last, steps)?;
            self.place = Place::Constrained(Box::new(constrained));
            return Ok(());
        }
        if let Some(processor) = &self.request.processor {
            let (wanted, logits) = (self.request.logprobs, (logits.clone(), *advance));
            self.place =
                Place::Processing(Box::new(Processing::new(session, processor.clone(), wanted, logits, ending.steps)));
            return Ok(());
        }
        session.choose_after(&engine.context, logits, *advance, false)?;
        let first = session.read_tokens(&engine.context, 0, 1)?;
        self.place = match self.request.speculation.take() {
            None => {
                let id = engine.decoding.borrow_mut().join(
                    session,
                    &self.request.sampler,
                    &self.request.rules,
                    ending,
                    self.request.context_shift,
                    first,
                );
                Place::Decoding(id)
            }
            Some(speculation) => Place::Speculating(Box::new(Speculating::new(session, speculation, first))),
        };
        Ok(())
    }

    /// The tokens that a grammar forces at the beginning, which go through the prompt's pass, and whether they are all.
    fn forced(&self, constraint: &mut dyn Constraint) -> Result<(Vec<u32>, bool)> {
        let mut state = constraint.advance(&[])?;
        let (mut forced, room) = (Vec::new(), self.longest());
        while !state.forced.is_empty() && forced.len() < room {
            state.forced.truncate(room - forced.len());
            let next = constraint.advance(&state.forced)?;
            forced.append(&mut state.forced);
            state = next;
        }
        Ok((forced, state.is_complete))
    }

    /// Whether a grammar leaves nothing but the end.
    fn is_complete(&self) -> bool {
        let is_complete = match &self.place {
            Place::Constrained(alone) => alone.is_complete(),
            _ => self.is_known,
        };
        is_complete && self.read.is_empty()
    }

    /// The next token, from those that were read, or from the oldest steps in flight. None where the caller cancelled meanwhile.
    async fn next_token(&mut self) -> Result<Option<Sampled>> {
        if self.read.is_empty() {
            let (last, longest) = (self.last, self.longest());
            match &mut self.place {
                Place::Decoding(id) => self.read = decoding::next_tokens(&self.engine, *id).await?,
                Place::Speculating(alone) => {
                    let tokens = alone.next_tokens(&self.engine, last, longest, self.request.context_shift).await?;
                    self.read = tokens.into_iter().map(Sampled::from).collect();
                }
                Place::Processing(alone) => match alone.next_token(&self.engine, last).await? {
                    Some(sampled) => self.read.push_back(sampled),
                    None => return Ok(None),
                },
                Place::Constrained(alone) => self.read = alone.next_tokens(&self.engine, longest).await?,
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
                "the logits of token {} are not numbers (NaN), or nothing but -infinity: the model's weights are broken or \
                 overflow, or the request bans every token",
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
        let stops = self.reader.stops_at(token);
        let ends = stops || self.ends.contains(&token);
        if let Place::Speculating(alone) = &mut self.place
            && !ends
        {
            alone.read(token, self.generated);
        }
        chunk.token_ids.push(token);
        if let (Some(logprobs), Some(all)) = (logprobs, &mut chunk.logprobs) {
            all.push(TokenLogprobs::new(&self.engine.tokenizer, token, &logprobs, self.offset));
        }
        if stops {
            let text = self.decoder.clone().showing(vec![token]).push(&self.engine.tokenizer, token)?;
            chunk.finish_reason = Some(self.reader.stop_at(token, &text, chunk));
            return Ok(());
        }
        if ends {
            chunk.finish_reason = Some(self.finish(End::Complete, FinishReason::Stop, chunk));
            return Ok(());
        }
        let piece = self.decoder.push(&self.engine.tokenizer, token)?;
        self.offset += piece.encode_utf16().count();
        chunk.finish_reason = self.reader.push(&piece, chunk);
        if chunk.finish_reason.is_some() {
            return Ok(());
        }
        if self.is_complete() {
            chunk.finish_reason = Some(self.finish(End::Complete, FinishReason::Stop, chunk));
        } else if self.generated >= self.longest() {
            chunk.finish_reason = Some(self.finish(End::Cut, FinishReason::Length, chunk));
        }
        Ok(())
    }

    /// The most tokens that this generation can have.
    fn longest(&self) -> usize {
        let asked = self.request.max_tokens.unwrap_or(usize::MAX);
        match self.request.context_shift {
            Some(_) => asked,
            // `start` made sure that the prompt is shorter than the context.
            None => asked.min(self.engine.info.context_length - self.request.prompt.len()),
        }
    }

    /// Hands out what was held back, and gives the reason for the end.
    fn finish(&mut self, end: End, reason: FinishReason, chunk: &mut Chunk) -> FinishReason {
        let tail = self.decoder.finish();
        self.reader.end(&tail, end, reason, chunk)
    }

    fn usage(&self) -> Usage {
        let (prompt_tokens, completion_tokens) = (self.request.prompt.len(), self.generated);
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens: self.cached },
            completion_tokens_details: CompletionTokensDetails { reasoning_tokens: self.reader.reasoning_tokens },
        }
    }

    fn timings(&self) -> Timings {
        let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        let (prompt_ms, decode_ms) = (ms(self.started, first), ms(first, now));
        let speculation = match &self.place {
            Place::Speculating(alone) => Some(alone.speculation()),
            _ => self.request.speculation.as_ref(),
        };
        let shifts = self.request.context_shift.map(|_| match &self.place {
            Place::Nowhere => ContextShifts::default(),
            Place::Prefill(session) => session.shifts(),
            Place::Decoding(id) => self.engine.decoding.borrow().shifts(*id),
            Place::Speculating(alone) => alone.shifts(),
            Place::Constrained(_) | Place::Processing(_) => ContextShifts::default(),
        });
        let counts = match &self.place {
            Place::Constrained(alone) => Some(alone.counts),
            _ => None,
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
            context_shifts: shifts.map(|shifts| shifts.count),
            dropped_tokens: shifts.map(|shifts| shifts.dropped_tokens),
            forced_tokens: counts.map(|counts| counts.forced),
            missed_masks: counts.map(|counts| counts.missed),
            dropped_steps: counts.map(|counts| counts.dropped),
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
            Place::Speculating(alone) => Some(alone.end(&self.engine, forget)),
            Place::Processing(alone) => Some(alone.end()),
            Place::Constrained(alone) => Some(alone.end(&self.engine)),
        };
        if let Some(mut session) = session {
            if forget {
                session.forget();
            }
            self.engine.give_back(session);
        }
    }
}

/// Tokens that end an answer: the model's, and the request's.
fn ends(engine: &Inner, request: &Request) -> Vec<u32> {
    let AnswerRequest { ends, stop_tokens, .. } = &request.answer;
    let of_model = engine.tokenizer.end_of_generation().iter().chain(ends).filter(|_| !request.ignore_eos);
    of_model.chain(stop_tokens).copied().collect()
}

impl Drop for Choice {
    fn drop(&mut self) {
        self.end(false);
    }
}
