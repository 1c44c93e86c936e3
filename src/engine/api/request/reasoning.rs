//! Reasoning: what a model writes before it answers.

use serde::Deserialize;

use super::group;
use crate::error::Result;

group! {
    /// What happens with reasoning, which a model writes before it answers.
    #[derive(Clone, Copy, Debug)]
    pub struct ReasoningFields {
        /// `auto` and `deepseek` return reasoning as `reasoning_content`. `none` leaves it in `content`, with its markers. Default: `auto`.
        /// An extension, with llama.cpp's name.
        pub reasoning_format: Option<ReasoningFormat>,
        /// False leaves the reasoning out. Default: true. This and the next field are extensions, with vLLM's names.
        pub include_reasoning: Option<bool>,
        /// The most tokens of reasoning. After them, the text that ends reasoning is forced, and the answer goes on. 0 ends it at once.
        pub thinking_token_budget: Option<u64>,
    }
}

/// Where reasoning goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ReasoningFormat {
    /// Set apart.
    Auto,
    /// The same as `auto`.
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
