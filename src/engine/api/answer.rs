//! Reads an answer's text: stop strings end it, reasoning and tool calls are taken out, and the rest is content.
//!
//! A stop string counts anywhere in the text that the model writes, also in reasoning and calls, as in vLLM and llama.cpp.

use std::hash::{BuildHasher, RandomState};

use super::chunk::{Chunk, FinishReason, FunctionDelta, MalformedToolCall, StopReason, ToolCallDelta};
use crate::text::answer::{Answer, AnswerSettings};
use crate::text::stop::StopStrings;
use crate::text::tools::{End, Part};

/// How an answer is read.
#[derive(Clone, Default)]
pub(in crate::engine) struct AnswerRequest {
    /// Texts that end the answer.
    pub stop: StopStrings,
    /// A stop string that is complete within this many tokens doesn't count, as in vLLM.
    pub min_tokens: usize,
    /// The answer keeps the stop string that ended it.
    pub include_stop: bool,
    /// The request's `stop_token_ids`.
    pub stop_tokens: Vec<u32>,
    /// Further tokens that end it, which belong to the model's format of calls.
    pub ends: Vec<u32>,
    /// How reasoning and calls are found.
    pub settings: AnswerSettings,
    /// Control tokens that count as text: markers of reasoning and calls.
    pub visible: Vec<u32>,
    /// The answer ends after its first call.
    pub single_call: bool,
    /// The reasoning is left out.
    pub drop_reasoning: bool,
    /// The prefix of a call's id, and how many letters and digits follow.
    pub call_id: (&'static str, usize),
}

/// Reads one answer, token by token.
pub(in crate::engine) struct AnswerReader {
    request: AnswerRequest,
    answer: Answer,
    /// Calls that have begun, and those of them that are complete.
    begun: usize,
    whole: usize,
    /// Tokens so far.
    tokens: usize,
    /// Tokens that are reasoning.
    pub reasoning_tokens: usize,
}

impl AnswerReader {
    /// Nothing has been read yet.
    pub fn new(request: AnswerRequest) -> Self {
        let answer = Answer::new(request.settings.clone());
        Self { request, answer, begun: 0, whole: 0, tokens: 0, reasoning_tokens: 0 }
    }

    /// Takes the text of one token. Returns the reason if the answer ends here.
    pub fn push(&mut self, piece: &str, chunk: &mut Chunk) -> Option<FinishReason> {
        self.tokens += 1;
        let was_reasoning = self.answer.is_reasoning();
        let matched = self.read(piece, chunk);
        self.reasoning_tokens += usize::from(was_reasoning || self.answer.is_reasoning());
        if matched {
            return Some(self.finish(End::Cut, FinishReason::Stop, chunk));
        }
        (self.request.single_call && self.whole > 0).then_some(FinishReason::ToolCalls)
    }

    /// Ends the answer at one of `stop_token_ids`, whose text is `piece`.
    pub fn stop_at(&mut self, token: u32, piece: &str, chunk: &mut Chunk) -> FinishReason {
        chunk.stop_reason = Some(StopReason::Token(token));
        if self.request.include_stop {
            let parts = self.answer.push(piece);
            self.hand_out(parts, chunk);
        }
        self.end("", End::Cut, FinishReason::Stop, chunk)
    }

    /// Whether the token is one of `stop_token_ids`.
    pub fn stops_at(&self, token: u32) -> bool {
        self.request.stop_tokens.contains(&token)
    }

    /// Ends the text with `tail`, which the detokeniser held back. Returns `reason`, unless the answer has calls or a stop string ends it.
    pub fn end(&mut self, tail: &str, end: End, reason: FinishReason, chunk: &mut Chunk) -> FinishReason {
        if self.read(tail, chunk) {
            return self.finish(End::Cut, FinishReason::Stop, chunk);
        }
        let rest = self.request.stop.finish();
        let parts = self.answer.push(&rest.text);
        self.hand_out(parts, chunk);
        match rest.matched {
            Some(stop) => {
                self.matched(stop, chunk);
                self.finish(End::Cut, FinishReason::Stop, chunk)
            }
            None => self.finish(end, reason, chunk),
        }
    }

    /// Takes text. Returns whether a stop string came.
    fn read(&mut self, piece: &str, chunk: &mut Chunk) -> bool {
        let progress = if self.tokens <= self.request.min_tokens {
            self.request.stop.push_exempt(piece)
        } else {
            self.request.stop.push(piece)
        };
        let parts = self.answer.push(&progress.text);
        self.hand_out(parts, chunk);
        match progress.matched {
            Some(stop) => {
                self.matched(stop, chunk);
                true
            }
            None => false,
        }
    }

    fn matched(&mut self, stop: String, chunk: &mut Chunk) {
        if self.request.include_stop {
            let parts = self.answer.push(&stop);
            self.hand_out(parts, chunk);
        }
        chunk.stop_reason = Some(StopReason::Text(stop));
    }

    fn finish(&mut self, end: End, reason: FinishReason, chunk: &mut Chunk) -> FinishReason {
        let parts = self.answer.finish(end);
        self.hand_out(parts, chunk);
        match reason {
            FinishReason::Stop if self.whole > 0 => FinishReason::ToolCalls,
            reason => reason,
        }
    }

    fn hand_out(&mut self, parts: Vec<Part>, chunk: &mut Chunk) {
        for part in parts {
            if self.request.single_call && self.whole > 0 {
                return;
            }
            match part {
                Part::Content(text) => chunk.text.push_str(&text),
                Part::Reasoning(_) if self.request.drop_reasoning => {}
                Part::Reasoning(text) => chunk.reasoning.push_str(&text),
                Part::Call { name, id } => {
                    let id = id.unwrap_or_else(|| call_id(self.request.call_id));
                    chunk.tool_calls.push(ToolCallDelta {
                        index: self.begun,
                        id: Some(id),
                        kind: Some("function"),
                        function: FunctionDelta { name: Some(name), arguments: String::new() },
                    });
                    self.begun += 1;
                }
                Part::Arguments(text) => {
                    let index = self.begun.saturating_sub(1);
                    match chunk.tool_calls.last_mut().filter(|call| call.index == index) {
                        Some(call) => call.function.arguments.push_str(&text),
                        None => chunk.tool_calls.push(ToolCallDelta {
                            index,
                            id: None,
                            kind: None,
                            function: FunctionDelta { name: None, arguments: text },
                        }),
                    }
                }
                Part::CallEnd => self.whole += 1,
                Part::Malformed { text, reason, begun } => {
                    let index = if begun { self.begun.checked_sub(1) } else { None };
                    chunk.malformed_tool_calls.push(MalformedToolCall { index, text, reason });
                }
            }
        }
    }
}

/// A new id for a call.
fn call_id((prefix, length): (&'static str, usize)) -> String {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut id = prefix.to_owned();
    let (mut bits, mut left) = (0u64, 0);
    for _ in 0..length {
        if left == 0 {
            (bits, left) = (RandomState::new().hash_one(&id), 10);
        }
        id.push(char::from(ALPHABET[(bits % 62) as usize]));
        bits /= 62;
        left -= 1;
    }
    id
}
