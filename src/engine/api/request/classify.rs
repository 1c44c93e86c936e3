//! Labels of texts.

use serde::Deserialize;
use serde_json::Value;

use super::fields::{Fields, group};
use super::rerank::yes;
use crate::error::Result;

group! {
    /// A request for labels.
    #[derive(Clone, Debug)]
    pub struct ClassifyRequest {
        /// One text or several (at most 2048), pairs of texts, or token ids. Texts get the tokens that the model wants around them.
        pub input: ClassifyInput,
        /// Cut a text that is too long at its end, and of a pair first the longer one, instead of rejecting with
        /// `context_length_exceeded`. Default: false. An extension.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub truncate: bool,
        /// With false `probs` are logits. Default: true. As in vLLM.
        #[serde(default = "yes")]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub use_activation: bool,
    }
}

/// One or more texts or pairs, or their token ids.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum ClassifyInput {
    /// One text.
    Text(String),
    /// One pair of texts.
    Pair(TextPair),
    /// Labels for each.
    Many(Vec<ClassifyText>),
    /// One text's tokens, taken as they are.
    Tokens(Vec<u32>),
}

/// A text to label.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum ClassifyText {
    /// One text.
    Text(String),
    /// Two texts as one input.
    Pair(TextPair),
    /// A text's tokens, taken as they are.
    Tokens(Vec<u32>),
}

/// Two texts as one input, such as a premise and a hypothesis. As in transformers' pipelines.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct TextPair {
    /// The first text.
    pub text: String,
    /// The second text.
    pub text_pair: String,
}

impl ClassifyInput {
    /// Its texts, in order.
    pub fn into_texts(self) -> Vec<ClassifyText> {
        match self {
            Self::Text(text) => vec![ClassifyText::Text(text)],
            Self::Pair(pair) => vec![ClassifyText::Pair(pair)],
            Self::Tokens(ids) => vec![ClassifyText::Tokens(ids)],
            Self::Many(texts) => texts,
        }
    }
}

impl ClassifyRequest {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
    pub fn parse(request: Value) -> Result<Self> {
        let mut fields = Fields::of("the classify request", request)?;
        let request = fields.group()?;
        fields.finish()?;
        Ok(request)
    }
}
