//! Ranking documents by a query.

use serde::Deserialize;
use serde_json::Value;

use super::fields::{Fields, group};
use crate::error::Result;

group! {
    /// A request to rank documents.
    #[derive(Clone, Debug)]
    pub struct RerankRequest {
        /// What the documents are compared with.
        pub query: String,
        /// The texts to rank, 1 to 2048.
        pub documents: Vec<RerankDocument>,
        /// Return only this many of the best. Default: all.
        pub top_n: Option<usize>,
        /// What the model is to look for. For models whose prompt has a place for it (Qwen3-Reranker). Default: what the model was trained
        /// with. An extension.
        pub instruction: Option<String>,
        /// Cut a pair that is too long, first the longer one of query and document, instead of rejecting with `context_length_exceeded`.
        /// Default: false. An extension.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub truncate: bool,
        /// With false the scores are logits. Default: true: what the model's files say, mostly shares between 0 and 1. An extension, as in
        /// vLLM.
        #[serde(default = "yes")]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub use_activation: bool,
    }
}

/// A text to rank.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum RerankDocument {
    /// The text alone.
    Text(String),
    /// The text in a field.
    Object(DocumentText),
}

/// A text with a name.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct DocumentText {
    /// The text.
    pub text: String,
}

impl RerankDocument {
    /// Its text.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Object(DocumentText { text }) => text,
        }
    }
}

pub(super) fn yes() -> bool {
    true
}

impl RerankRequest {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
    pub fn parse(request: Value) -> Result<Self> {
        let mut fields = Fields::of("the rerank request", request)?;
        let request = fields.group()?;
        fields.finish()?;
        Ok(request)
    }
}
