//! Several tokens by one pass.

use serde::Deserialize;

use super::fields::group;

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct SpeculationFields {
        /// Several tokens by one pass, where a draft turns out right (`speculation.rs`). An extension.
        pub speculation: Option<SpeculationRequest>,
    }
}

/// What a request may ask for.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SpeculationRequest {
    PromptLookup {
        #[serde(default)]
        max_tokens: Option<u64>,
        #[serde(default)]
        min_ngram: Option<u64>,
    },
    DraftModel {
        #[serde(default)]
        max_tokens: Option<u64>,
    },
}
