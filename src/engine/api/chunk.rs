//! What a generation hands out: pieces of its answers, why they ended, and what they took.

use serde::Serialize;

use super::logprobs::TokenLogprobs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its turn, or a stop string or token came.
    Stop,
    /// The same, with calls of functions in the answer.
    ToolCalls,
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
    pub prompt_tokens_details: PromptTokensDetails,
    pub completion_tokens_details: CompletionTokensDetails,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    /// Those that the KV cache already held.
    pub cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompletionTokensDetails {
    /// Those that are reasoning, with its markers.
    pub reasoning_tokens: usize,
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
    /// With `context_shift`: how often the context was full, and the tokens that were dropped to make room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_shifts: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_tokens: Option<usize>,
    /// Under a grammar: tokens that it left no choice about, masks of steps that ran ahead and had to be done again with another, and the
    /// steps that ran for nothing because of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_masks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_steps: Option<usize>,
}

/// A piece of a tool call, in OpenAI's shape: the first one has the id and the name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolCallDelta {
    /// Which of the answer's calls.
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: FunctionDelta,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The next piece of JSON.
    pub arguments: String,
}

/// What looked like a call and is none. Its text is in the content.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MalformedToolCall {
    /// The call whose beginning was handed out, which is not to be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    pub text: String,
    pub reason: String,
}

/// What of a request ended an answer, as vLLM says it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum StopReason {
    Text(String),
    Token(u32),
}

/// A piece of an answer. The last one of each choice has its finish reason, and the last one of all usage and timings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Chunk {
    /// Which of the choices.
    pub index: usize,
    pub text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallDelta>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub malformed_tool_calls: Vec<MalformedToolCall>,
    pub token_ids: Vec<u32>,
    /// Where they were asked for, one for each of `token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<TokenLogprobs>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// What of the request ended the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

impl Chunk {
    /// Whether there is something to hand out.
    pub(in crate::engine) fn says_nothing(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.tool_calls.is_empty()
    }
}
