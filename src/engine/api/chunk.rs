//! What a generation hands out: pieces of its answers, why they ended, and what they took.

use serde::Serialize;

use super::logprobs::TokenLogprobs;

/// `stop`: the model ended its turn, or what `stop` or `stop_token_ids` names came. `tool_calls`: the same, with whole calls in the answer.
/// `length`: the most tokens, or the end of the context. `cancelled`: by the caller; an extension.
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

/// Tokens that a request took.
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

/// Of the prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PromptTokensDetails {
    /// Those that were still in the KV cache.
    pub cached_tokens: usize,
}

/// Of the answer's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CompletionTokensDetails {
    /// Those that are reasoning, with its markers.
    pub reasoning_tokens: usize,
}

/// How long a request took. An extension of OpenAI's shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Timings {
    /// From the start to the first token.
    pub prompt_ms: f64,
    /// Tokens of the prompt in each second of `prompt_ms`, without the cached ones.
    pub prompt_tokens_per_s: f64,
    /// From the first token to the last.
    pub decode_ms: f64,
    /// Tokens after the first one of each answer, in each second of `decode_ms`.
    pub tokens_per_s: f64,
    /// Tokens of the prompt that were still in the KV cache.
    pub cached_prompt_tokens: usize,
    /// With `speculation`: tokens of drafts that were verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_tokens: Option<usize>,
    /// With `speculation`: tokens of drafts that were right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_draft_tokens: Option<usize>,
    /// With `context_shift`: how often the context was full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_shifts: Option<usize>,
    /// With `context_shift`: tokens of the prompt and the answer that were dropped to make room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_tokens: Option<usize>,
    /// Under a grammar: tokens that it left no choice about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_tokens: Option<usize>,
    /// Under a grammar: steps that ran ahead with a wrong mask, and were done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_masks: Option<usize>,
    /// Under a grammar: steps that ran for nothing because of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_steps: Option<usize>,
}

/// A piece of a call: the first one of each `index` has the id and the name, and the pieces of `arguments` together are JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ToolCallDelta {
    /// Which of the answer's calls.
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
    /// The next piece of JSON.
    pub arguments: String,
}

/// What looked like a call and is none. Its text is in `content`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MalformedToolCall {
    /// The call whose beginning was streamed already, and which is not to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// What the model wrote.
    pub text: String,
    /// Why it is no call, in words for people.
    pub reason: String,
}

/// What of a request ended an answer, as vLLM says it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum StopReason {
    /// A text of `stop`.
    Text(String),
    /// A token of `stop_token_ids`.
    Token(u32),
}

/// A piece of the text of one choice. The last one of each says why it is the last, and the last one of all has usage and timings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Chunk {
    /// Which of the choices.
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
    /// Where they were asked for, one for each of `token_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<TokenLogprobs>>,
    /// In the last chunk of a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// What of the request ended the answer.
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
    /// Whether there is something to hand out.
    pub(in crate::engine) fn says_nothing(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.tool_calls.is_empty()
    }
}
