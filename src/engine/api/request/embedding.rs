//! Embeddings: vectors of texts.

use serde::Deserialize;
use serde_json::Value;

use super::fields::{Fields, group};
use crate::error::Result;

group! {
    /// A request for embeddings.
    #[derive(Clone, Debug)]
    pub struct EmbeddingRequest {
        /// One text or several (at most 2048), or their token ids. Texts get the tokens that the model wants around them.
        pub input: Input,
        /// Keep only this many numbers of each vector, the first ones, scaled to length 1. For models that were trained for it. Default:
        /// all.
        pub dimensions: Option<usize>,
        /// Cut the end of a text that is too long, instead of rejecting with `context_length_exceeded`. Default: false. An extension.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub truncate: bool,
    }
}

/// One or more texts, or their token ids.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum Input {
    /// One text.
    Text(String),
    /// One vector for each.
    Texts(Vec<String>),
    /// One text's tokens, taken as they are.
    Tokens(Vec<u32>),
    /// The tokens of each text, taken as they are.
    ManyTokens(Vec<Vec<u32>>),
}

impl EmbeddingRequest {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
    pub fn parse(request: Value) -> Result<Self> {
        let mut fields = Fields::of("the embedding request", request)?;
        let request = fields.group()?;
        fields.finish()?;
        Ok(request)
    }
}
