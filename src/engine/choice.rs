//! One choice of a generation: its prompt, its tokens as they come, stop conditions, and the text in chunks.
//!
//! Tokens come from a sequence of the decode loop (`decode`). Those that ran past the end of the text are dropped and never shown.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use web_time::Instant;

use super::api::answer::{AnswerReader, AnswerRequest};
use super::api::chunk::{Chunk, CompletionTokensDetails, FinishReason, PromptTokensDetails, Timings, Usage};
use super::api::logprobs::TokenLogprobs;
use super::api::request::GrammarRequest;
use super::engine::Inner;
use super::reasoning_budget::{Budget, ReasoningBudget};
use super::replay::ReplayedChoice;
use crate::decode::conflicts::Feature;
use crate::decode::constraint::Constraint;
use crate::decode::{
    AdapterSet, Canceller, ContextShift, ContextShifts, Grammar, GrammarCursor, GrammarState, KnownMasks,
    LogitsProcessor, Methods, Patience, PrefillResult, Prefilled, Prompt, SequenceCounts, SequenceHandle,
    SequenceParams, Speculation, Tokens,
};
use crate::error::Result;
use crate::sampler::{Ending, Features, Sampled, SamplingParams, TokenRules};
use crate::text::answer::AnswerSettings;
use crate::text::detokenize::StreamDecoder;
use crate::text::tools::End;

/// What to generate, after validation.
#[derive(Clone)]
pub(super) struct Request {
    /// Token ids, at least one and fewer than the context holds: what is continued.
    pub prompt: Vec<u32>,
    /// What the encoder of an encoder-decoder reads: the caller's prompt. Then `prompt` is how its decoder begins.
    pub source: Option<Rc<[u32]>>,
    /// `None`: as many as the context has room for.
    pub max_tokens: Option<usize>,
    /// With the seed of this choice.
    pub sampler: SamplingParams,
    /// Biases, bans and DRY's sequence breakers.
    pub rules: Rc<TokenRules>,
    /// How the answer is read, and what ends it.
    pub answer: AnswerRequest,
    /// The most tokens of reasoning.
    pub budget: Option<Budget>,
    /// The model's own end tokens don't end the answer.
    pub ignore_eos: bool,
    /// How drafts are made, if any.
    pub speculation: Option<Speculation>,
    /// Makes room when the context is full, instead of ending.
    pub context_shift: Option<ContextShift>,
    /// What the answer is held to.
    pub grammar: Option<GrammarRequest>,
    /// If log probabilities are wanted: how many of the most probable tokens come with each token.
    pub logprobs: Option<usize>,
    /// Changes the logits before each choice.
    pub processor: Option<Rc<dyn LogitsProcessor>>,
    /// How many answers to the prompt.
    pub choices: usize,
    /// The request has a seed: the same request must give the same tokens again.
    pub is_reproducible: bool,
    /// What is known of this choice from before.
    pub replayed: Option<ReplayedChoice>,
    /// The answer continues the prompt's text (a completion) rather than standing for itself (a chat message).
    pub continues: bool,
    /// What adds to the model's weights.
    pub adapters: AdapterSet,
}

impl Request {
    /// The features that it asks for, with the fields that do so: some exclude each other (`decode/conflicts.rs`).
    pub fn features(&self) -> Vec<(Feature, &'static str)> {
        let sampler = Features::of(&self.sampler, &self.rules);
        let rules = "a bias, a ban, min_tokens, a penalty or DRY";
        let asked = [
            self.speculation.map(|_| (Feature::Speculation, "speculation")),
            self.grammar.as_ref().map(|asked| (Feature::Grammar, asked.field)),
            self.budget.as_ref().map(|_| (Feature::ReasoningBudget, "thinking_token_budget")),
            self.processor.as_ref().map(|_| (Feature::LogitsProcessor, "a logits processor")),
            self.context_shift.map(|_| (Feature::ContextShift, "context_shift")),
            self.logprobs.map(|_| (Feature::Logprobs, "logprobs")),
            (self.sampler.temperature != 0.0).then_some((Feature::Sampling, "a temperature above 0")),
            sampler.adjusts().then_some((Feature::LogitRules, rules)),
            self.ignore_eos.then_some((Feature::IgnoreEos, "ignore_eos")),
            self.source.as_ref().map(|_| (Feature::Encoder, "a model that has an encoder")),
        ];
        asked.into_iter().flatten().collect()
    }

    /// How many tokens the caller's prompt has.
    pub fn prompt_tokens(&self) -> usize {
        self.source.as_ref().map_or(self.prompt.len(), |source| source.len())
    }
}

/// An answer under way. Dropping it ends it.
pub(super) struct Choice {
    engine: Rc<Inner>,
    phase: Phase,
    request: Request,
    decoder: StreamDecoder,
    reader: AnswerReader,
    /// Tokens that end the answer.
    ends: Vec<u32>,
    /// Tokens that came and are not part of the answer yet.
    read: VecDeque<Sampled>,
    /// Tokens of the answer so far.
    generated: usize,
    /// The length of their text in UTF-16 code units.
    offset: usize,
    cached: usize,
    started: Instant,
    first_token: Option<Instant>,
    canceller: Canceller,
    /// The logits processor or the grammar wants no more.
    is_cut: bool,
}

enum Phase {
    /// Nothing runs yet. Holds the grammar once it is compiled.
    Waiting(Option<GrammarCursor>),
    /// Nothing is left to choose: the answer is in `read`, perhaps cut by the limit of tokens.
    Known {
        is_whole: bool,
    },
    Running(Running),
    /// Over; nothing is held any more.
    Done,
}

/// A choice whose sequence decodes.
struct Running {
    sequence: SequenceHandle,
    grammar: Option<Rc<RefCell<GrammarState>>>,
    /// The pass that samples the first token: how many tokens it takes in, and when it began.
    last_pass: Option<(usize, Instant)>,
}

/// The beginning of an answer that is not chosen: what is known of it from before, and what a grammar forces.
struct ForcedPrefix {
    grammar: Option<GrammarCursor>,
    tokens: Vec<u32>,
}

impl Choice {
    /// Nothing runs before the first `next`.
    pub fn new(engine: Rc<Inner>, request: Request, canceller: Canceller) -> Self {
        // A grammar describes the text to the letter.
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
            phase: Phase::Waiting(None),
            request,
            decoder,
            reader,
            ends,
            read: VecDeque::new(),
            generated: 0,
            offset: 0,
            cached: 0,
            started: Instant::now(),
            first_token: None,
            canceller,
            is_cut: false,
        }
    }

    /// True after the last chunk and after an error.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// The next piece of the answer, `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Chunk>> {
        if self.is_finished() {
            return Ok(None);
        }
        let result = self.advance().await;
        if result.is_err() {
            if let Phase::Running(running) = &self.phase {
                running.sequence.distrust();
            }
            self.end();
        }
        result.map(Some)
    }

    /// Compiles the request's grammar, so that its errors come before anything is generated. Otherwise `begin` does it.
    pub async fn prepare(&mut self) -> Result<()> {
        if matches!(self.phase, Phase::Waiting(None)) {
            self.phase = Phase::Waiting(self.grammar().await?);
        }
        Ok(())
    }

    /// The request's grammar and its budget of reasoning, at the beginning of the answer.
    async fn grammar(&mut self) -> Result<Option<GrammarCursor>> {
        let cursor = match &self.request.grammar {
            Some(asked) => {
                let vocab_size = self.engine.info.vocab_size;
                Some(self.engine.grammars.begin(asked, &self.engine.tokenizer, vocab_size).await?)
            }
            None => None,
        };
        let Some(budget) = self.request.budget.clone() else { return Ok(cursor) };
        let settings = AnswerSettings { tools: None, ..self.request.answer.settings.clone() };
        let (tokenizer, decoder, ends) = (self.engine.tokenizer.clone(), self.decoder.clone(), self.ends.clone());
        let grammar = cursor.map(|cursor| cursor.constraint);
        let budget = ReasoningBudget::new(tokenizer, decoder, settings, budget, ends, grammar);
        Ok(Some(GrammarCursor { constraint: Box::new(budget), known: KnownMasks::default() }))
    }

    async fn advance(&mut self) -> Result<Chunk> {
        let mut chunk = Chunk { logprobs: self.request.logprobs.map(|_| vec![]), ..Chunk::default() };
        // All tokens that came make one chunk. A token may give no text yet: it is a part of a character, or of what may become a stop
        // string.
        while chunk.finish_reason.is_none() && (chunk.says_nothing() || !self.read.is_empty()) {
            if self.is_cut || self.canceller.is_cancelled() {
                chunk.finish_reason = Some(self.finish(End::Cut, FinishReason::Cancelled, &mut chunk));
                break;
            }
            if self.is_complete() {
                // The grammar allows only the empty text.
                chunk.finish_reason = Some(self.finish(End::Complete, FinishReason::Stop, &mut chunk));
                break;
            }
            match self.next_token().await? {
                Some(sampled) => self.take_token(sampled, &mut chunk)?,
                None => self.is_cut |= !self.is_complete(),
            }
        }
        if chunk.finish_reason.is_some() {
            chunk.usage = Some(self.usage());
            chunk.timings = Some(self.timings());
            self.end();
        }
        Ok(chunk)
    }

    /// Takes the prompt in, or over from a choice that did (`prompted`), and lets the first token be sampled. Called before the first
    /// `next`. Returns what other choices can take over; nothing if a grammar leaves nothing to sample.
    pub async fn begin(
        &mut self,
        prompted: Option<&PrefillResult>,
        patience: Patience,
    ) -> Result<Option<PrefillResult>> {
        let begun = self.run(prompted, &patience).await;
        if begun.is_err() {
            self.end();
        }
        begun
    }

    async fn run(&mut self, prompted: Option<&PrefillResult>, patience: &Patience) -> Result<Option<PrefillResult>> {
        self.started = Instant::now();
        self.prepare().await?;
        let Phase::Waiting(grammar) = std::mem::replace(&mut self.phase, Phase::Waiting(None)) else {
            bail!(Internal, "a choice was begun twice")
        };
        let Some(ForcedPrefix { grammar, tokens: forced }) = self.forced_prefix(grammar)? else { return Ok(None) };
        let tokens = [&self.request.prompt, &forced[..]].concat();
        let params = SequenceParams {
            sampler: self.request.sampler,
            rules: self.request.rules.clone(),
            ending: Ending { stops: self.ends.clone(), steps: self.longest() },
            context_shift: self.request.context_shift,
            logprobs: self.request.logprobs,
            masked: grammar.is_some(),
        };
        // With a logits processor the logits come to the CPU, which computes log probabilities itself.
        let logprobs = self.request.logprobs.filter(|_| self.request.processor.is_none());
        let is_reproducible = self.request.is_reproducible;
        let canceller = self.canceller.clone();
        let source = self.request.source.clone();
        let source = source.as_deref();
        let prompt = Prompt {
            tokens: &tokens,
            source,
            forced: forced.len(),
            is_reproducible,
            logprobs,
            adapters: self.request.adapters.clone(),
            canceller,
        };
        let decoder = self.engine.decoder()?.clone();
        // What is known of one choice is not a part of the others.
        let is_replayed = self.request.replayed.is_some();
        let prompted = prompted.filter(|_| !is_replayed);
        let Some(prefilled) = decoder.prefill(&prompt, &params, prompted, patience).await? else { return Ok(None) };
        self.cached = match source {
            // What another choice's encoder has read, if anything.
            Some(source) => {
                if prefilled.cached > 0 {
                    source.len()
                } else {
                    0
                }
            }
            None => prefilled.cached.min(self.request.prompt.len()),
        };
        let Prefilled { last_pass, .. } = prefilled;
        let result = prefilled.result.clone();
        let last = tokens.last().copied().unwrap_or_default();
        let methods = self.methods(grammar);
        let (sequence, grammar) = decoder.start(prefilled, params, last, forced.len(), methods)?;
        self.read = forced.into_iter().map(Sampled::from).collect();
        self.phase = Phase::Running(Running { sequence, grammar, last_pass });
        Ok(Some(result).filter(|_| prompted.is_none() && !is_replayed))
    }

    fn methods(&self, grammar: Option<GrammarCursor>) -> Methods {
        let grammar = grammar.map(|cursor| Grammar {
            cursor,
            vocabulary: self.engine.tokenizer.clone(),
            vocab_size: self.engine.info.vocab_size,
            mode: None,
        });
        let Request { speculation, processor, .. } = &self.request;
        Methods { speculation: *speculation, grammar, processor: processor.clone(), ..Methods::default() }
    }

    /// What is known at the beginning. `None` if nothing is left to sample.
    fn forced_prefix(&mut self, mut grammar: Option<GrammarCursor>) -> Result<Option<ForcedPrefix>> {
        let ReplayedChoice { tokens: known, is_finished } = self.request.replayed.clone().unwrap_or_default();
        let (tokens, is_whole) = match &mut grammar {
            // It may hold the token that ended it, which is none of the grammar's.
            _ if is_finished => {
                let is_whole = known.len() < self.longest();
                (known, is_whole)
            }
            Some(cursor) => {
                // Log probabilities are wanted for each token, so each is sampled, even if it is the only one allowed.
                let room = if self.request.logprobs.is_some() { known.len() } else { self.longest() };
                forced(&mut *cursor.constraint, known, room)?
            }
            None => (known, false),
        };
        if is_whole || tokens.len() >= self.longest() {
            self.read = tokens.into_iter().map(Sampled::from).collect();
            self.phase = Phase::Known { is_whole };
            return Ok(None);
        }
        let (length, capacity) = (self.request.prompt.len() + tokens.len(), self.engine.info.context_length);
        if length >= capacity {
            bail!(
                ContextLengthExceeded,
                "the answer has shifted its context and can't be taken up again: {length} tokens are known, and the context holds {capacity}"
            );
        }
        Ok(Some(ForcedPrefix { grammar, tokens }))
    }

    /// Whether a grammar leaves nothing but the end.
    fn is_complete(&self) -> bool {
        let is_complete = match &self.phase {
            Phase::Known { is_whole } => *is_whole,
            Phase::Running(running) => running.sequence.is_complete(),
            Phase::Waiting(_) | Phase::Done => false,
        };
        is_complete && self.read.is_empty()
    }

    /// The next token. `None` if the caller cancelled meanwhile, or nothing follows.
    async fn next_token(&mut self) -> Result<Option<Sampled>> {
        if self.read.is_empty()
            && let Phase::Running(running) = &mut self.phase
        {
            match running.sequence.next().await? {
                Tokens::Some(tokens) => self.read = tokens,
                Tokens::Complete => {}
                Tokens::Cancelled => self.is_cut = true,
            }
            if let Some((tokens, begin)) = running.last_pass.take() {
                self.engine.decoder()?.took_prompt(tokens, begin.elapsed());
                // The memory for the prompt's activations is given back, except for a twentieth of what the model takes.
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
            sampled => Ok(sampled),
        }
    }

    fn take_token(&mut self, Sampled { token, logprobs }: Sampled, chunk: &mut Chunk) -> Result<()> {
        self.first_token.get_or_insert_with(Instant::now);
        self.generated += 1;
        let stops = self.reader.stops_at(token);
        let ends = stops || self.ends.contains(&token);
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

    /// Hands out the text that was held back. Returns why the answer ended.
    fn finish(&mut self, end: End, reason: FinishReason, chunk: &mut Chunk) -> FinishReason {
        let tail = self.decoder.finish();
        self.reader.end(&tail, end, reason, chunk)
    }

    fn usage(&self) -> Usage {
        let (prompt_tokens, completion_tokens) = (self.request.prompt_tokens(), self.generated);
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
        let (counts, shifts) = match &self.phase {
            Phase::Running(Running { sequence, .. }) => (sequence.counts(), sequence.shifts()),
            _ => (SequenceCounts::default(), ContextShifts::default()),
        };
        let request = &self.request;
        let (speculates, shifts_context) = (request.speculation.is_some(), request.context_shift.is_some());
        let has_grammar = matches!(&self.phase, Phase::Running(Running { grammar: Some(_), .. }));
        let per_second = |tokens: usize, ms: f64| if ms > 0.0 { tokens as f64 * 1e3 / ms } else { 0.0 };
        Timings {
            prompt_ms,
            prompt_tokens_per_s: per_second(self.request.prompt_tokens() - self.cached, prompt_ms),
            decode_ms,
            tokens_per_s: per_second(self.generated.saturating_sub(1), decode_ms),
            cached_prompt_tokens: self.cached,
            draft_tokens: speculates.then_some(counts.draft_tokens),
            accepted_draft_tokens: speculates.then_some(counts.accepted_draft_tokens),
            context_shifts: shifts_context.then_some(shifts.count),
            dropped_tokens: shifts_context.then_some(shifts.dropped_tokens),
            forced_tokens: has_grammar.then_some(counts.forced_tokens),
            missed_masks: has_grammar.then_some(counts.missed_masks),
            dropped_steps: has_grammar.then_some(counts.dropped_steps),
        }
    }

    /// Gives back what it holds.
    fn end(&mut self) {
        self.read.clear();
        if let Phase::Running(Running { sequence, grammar, .. }) = std::mem::replace(&mut self.phase, Phase::Done) {
            drop(sequence);
            if let Some(grammar) = grammar {
                grammar.borrow().end();
            }
        }
    }
}

/// The known tokens and those that a grammar forces after them, at most `room` in all, and whether they are the whole answer.
fn forced(constraint: &mut dyn Constraint, known: Vec<u32>, room: usize) -> Result<(Vec<u32>, bool)> {
    let (mut state, mut forced) = (constraint.advance(&known)?, known);
    while !state.forced.is_empty() && forced.len() < room {
        state.forced.truncate(room - forced.len());
        let next = constraint.advance(&state.forced)?;
        forced.append(&mut state.forced);
        state = next;
    }
    Ok((forced, state.is_complete))
}

/// Tokens that end an answer: the model's, and the request's.
fn ends(engine: &Inner, request: &Request) -> Vec<u32> {
    let AnswerRequest { ends, stop_tokens, .. } = &request.answer;
    let of_model = engine.tokenizer.end_of_generation().iter().chain(ends).filter(|_| !request.ignore_eos);
    of_model.chain(stop_tokens).copied().collect()
}

impl Drop for Choice {
    fn drop(&mut self) {
        self.end();
    }
}
