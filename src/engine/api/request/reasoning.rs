//! What becomes of what a model thinks before it answers.

use serde::Deserialize;

use super::group;
use crate::error::Result;

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct ReasoningFields {
        /// Whether reasoning is set apart from the content, in llama.cpp's words. An extension, as are the others.
        pub reasoning_format: Option<ReasoningFormat>,
        /// Whether it is handed out at all, in vLLM's words.
        pub include_reasoning: Option<bool>,
        /// The most tokens of it, in vLLM's words.
        pub thinking_token_budget: Option<u64>,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningFormat {
    /// Set apart.
    Auto,
    /// The same.
    Deepseek,
    /// It stays in the content, with its markers.
    None,
}

impl ReasoningFields {
    /// Whether reasoning is set apart.
    pub(in crate::engine::api) fn is_separate(&self) -> Result<bool> {
        let is_separate = self.reasoning_format != Some(ReasoningFormat::None);
        if !is_separate && self.include_reasoning == Some(false) {
            bail!(
                InvalidRequest,
                "include_reasoning is false, and reasoning_format \"none\" leaves the reasoning in the content; leave one out"
            );
        }
        if !is_separate && self.thinking_token_budget.is_some() {
            bail!(
                InvalidRequest,
                "thinking_token_budget counts what reasoning_format \"none\" does not tell apart; leave one of them out"
            );
        }
        Ok(is_separate)
    }
}
