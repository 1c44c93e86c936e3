//! What a generation returns: pieces of its answers, why they ended, and what they took.

use serde::Serialize;

use super::logprobs::TokenLogprobs;

/// Why an answer ended. `stop`: the model ended its turn, or `stop` or `stop_token_ids` matched. `tool_calls`: the same, and the answer
/// has complete calls. `length`: `max_tokens`, or the end of the context. `cancelled`: the caller cancelled; an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its turn, or `stop` or `stop_token_ids` matched.
    Stop,
    /// The same, and the answer has complete calls.
    ToolCalls,
    /// `max_tokens`, or the end of the context.
    Length,
    /// The caller cancelled.
    Cancelled,
}

/// How many tokens a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Usage {
    /// Of the whole prompt, cached or not. With `n` answers it counts once.
    pub prompt_tokens: usize,
    /// Of all answers, with the tokens that ended them.
    pub completion_tokens: usize,
    /// Prompt and answers.
    pub total_tokens: usize,
    /// Where the prompt's tokens came from.
    pub prompt_tokens_details: PromptTokensDetails,
    /// What the tokens of the answers are.
    pub completion_tokens_details: CompletionTokensDetails,
}

/// Parts of `prompt_tokens`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PromptTokensDetails {
    /// Tokens that the KV cache or the prompt cache still had, so that they were not computed again.
    pub cached_tokens: usize,
}

/// Parts of `completion_tokens`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CompletionTokensDetails {
    /// Tokens of reasoning, with its markers.
    pub reasoning_tokens: usize,
}

/// How long a request took. An extension of OpenAI's shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Timings {
    /// Milliseconds from the start to the first token.
    pub prompt_ms: f64,
    /// Tokens of the prompt in each second of `prompt_ms`, without the cached ones.
    pub prompt_tokens_per_s: f64,
    /// Milliseconds from the first token to the last.
    pub decode_ms: f64,
    /// Tokens after the first one of each answer, in each second of `decode_ms`.
    pub tokens_per_s: f64,
    /// The same as `cached_tokens` of `usage`.
    pub cached_prompt_tokens: usize,
    /// With `speculation`: drafted tokens that were verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_tokens: Option<usize>,
    /// With `speculation`: drafted tokens that were right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_draft_tokens: Option<usize>,
    /// With `context_shift`: how often the context was full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_shifts: Option<usize>,
    /// With `context_shift`: tokens of the prompt and the answer that were dropped to make room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_tokens: Option<usize>,
    /// With a grammar: tokens that were the only ones it allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_tokens: Option<usize>,
    /// With a grammar: steps that ran ahead with a wrong mask and were done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_masks: Option<usize>,
    /// With a grammar: steps that were dropped because an earlier mask was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_steps: Option<usize>,
}

/// A piece of a call. The first piece of each `index` has id and name; the `arguments` of all its pieces together are JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ToolCallDelta {
    /// Number of the call in its answer, from 0.
    pub index: usize,
    /// In the first piece: names the call, so that a `tool` message can answer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// In the first piece.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(type = "'function'"))]
    pub kind: Option<&'static str>,
    /// What this piece adds to the call.
    pub function: FunctionDelta,
}

/// The function that is called.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct FunctionDelta {
    /// In the first piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The next piece of the JSON text.
    pub arguments: String,
}

/// Text that looks like a call but can't be read as one. It is in `content` too.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MalformedToolCall {
    /// The number of the call, if its beginning was already streamed. Don't make that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// What the model wrote.
    pub text: String,
    /// Why it is no call, in words for people.
    pub reason: String,
}

/// What matched and ended the answer: a text of `stop` or a token of `stop_token_ids`, as in vLLM.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum StopReason {
    /// A text of `stop`.
    Text(String),
    /// A token of `stop_token_ids`.
    Token(u32),
}

/// A piece of one choice. The last piece of each choice has `finish_reason`; the last of all has `usage` and `timings`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Chunk {
    /// Number of the choice, from 0.
    pub index: usize,
    /// More of the answer, without reasoning and calls.
    pub text: String,
    /// More of the reasoning.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Calls that begin or go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallDelta>,
    /// Texts that look like calls and can't be read as such.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub malformed_tool_calls: Vec<MalformedToolCall>,
    /// The tokens that came since the last chunk. A part of their text may come later.
    pub token_ids: Vec<u32>,
    /// If the request asks for them: one for each of `token_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<TokenLogprobs>>,
    /// In the last chunk of a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// If `stop` or `stop_token_ids` ended the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// In the last chunk of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// In the last chunk of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

impl Chunk {
    /// Whether there is nothing to show yet.
    pub(in crate::engine) fn says_nothing(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.tool_calls.is_empty()
    }
}
