//! Speculation: several tokens from one pass.

use serde::Deserialize;

use super::fields::group;
use crate::decode::{MAX_DRAFT, MAX_NGRAM, PromptLookup, Speculation};
use crate::error::Result;

const DEFAULT_DRAFT: usize = 5;
const DEFAULT_NGRAM: usize = 2;
/// A head is trained for the next token but one; each further one is its own guess upon a guess.
const DEFAULT_PREDICTED: usize = 2;

group! {
    /// Several tokens from one pass.
    #[derive(Clone, Copy, Debug)]
    pub struct SpeculationFields {
        /// Draft tokens and verify several in one pass. Only with `temperature: 0`, whose answer stays the same. `prompt_lookup` is faster
        /// if answers repeat their prompt or themselves, `draft_model` if a much smaller model often says the same; otherwise both are
        /// slower. `mtp` drafts with the model's own head for multi-token prediction, and stops where that does not pay. Default: off. An
        /// extension.
        pub speculation: Option<SpeculationRequest>,
    }
}

/// `prompt_lookup` finds the last tokens earlier in the prompt or the answer, and drafts what followed them there. `draft_model` drafts
/// with the engine's draft model (`draft` of the load). `mtp` drafts with the model's own head (`multiTokenPrediction` of the load).
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SpeculationRequest {
    /// Drafts what followed the last tokens where they stood before.
    PromptLookup {
        /// The most tokens of a draft, 1 to 7. Default: 5.
        #[serde(default)]
        max_tokens: Option<u64>,
        /// How many of the last tokens must have stood there, at least: 1 to 16. Default: 2.
        #[serde(default)]
        min_ngram: Option<u64>,
    },
    /// Drafts with the engine's draft model; `invalid_request` if it has none.
    DraftModel {
        /// The most tokens of a draft, 1 to 7. Default: 5.
        #[serde(default)]
        max_tokens: Option<u64>,
    },
    /// Drafts with the model's head for multi-token prediction; `invalid_request` if it is not loaded. What a token takes with drafts and
    /// without is measured, and the faster way goes on.
    Mtp {
        /// The most tokens of a draft, 1 to 7. Default: 2.
        #[serde(default)]
        max_tokens: Option<u64>,
    },
}

/// What an engine has to draft with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drafters {
    /// A draft model.
    pub draft_model: bool,
    /// The model's own head.
    pub mtp: bool,
}

impl SpeculationRequest {
    /// Refuses numbers out of range, and what the engine has not.
    pub(in crate::engine::api) fn speculation(self, has: Drafters) -> Result<Speculation> {
        let within = |name: &str, value: Option<u64>, default: usize, most: usize| match value {
            None => Ok(default),
            Some(value) if (1..=most as u64).contains(&value) => Ok(value as usize),
            Some(value) => bail!(InvalidRequest, "speculation.{name} is {value}, wanted 1 to {most}"),
        };
        match self {
            Self::PromptLookup { max_tokens, min_ngram } => Ok(Speculation::PromptLookup(PromptLookup {
                max_tokens: within("max_tokens", max_tokens, DEFAULT_DRAFT, MAX_DRAFT)?,
                min_ngram: within("min_ngram", min_ngram, DEFAULT_NGRAM, MAX_NGRAM)?,
            })),
            Self::DraftModel { max_tokens } => {
                let max_tokens = within("max_tokens", max_tokens, DEFAULT_DRAFT, MAX_DRAFT)?;
                if !has.draft_model {
                    bail!(
                        InvalidRequest,
                        "speculation.type is \"draft_model\", and the engine has none; load it with the option draft"
                    );
                }
                Ok(Speculation::DraftModel(max_tokens))
            }
            Self::Mtp { max_tokens } => {
                let max_tokens = within("max_tokens", max_tokens, DEFAULT_PREDICTED, MAX_DRAFT)?;
                if !has.mtp {
                    bail!(
                        InvalidRequest,
                        "speculation.type is \"mtp\", and no head for multi-token prediction is loaded; load a model that has one with \
                         multiTokenPrediction: true"
                    );
                }
                Ok(Speculation::Mtp(max_tokens))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Code;

    #[test]
    fn what_can_not_be_had_is_refused() {
        let none = Drafters::default();
        let parse = |request: serde_json::Value| serde_json::from_value::<SpeculationRequest>(request).unwrap();
        let lookup = parse(json!({"type": "prompt_lookup"})).speculation(none).unwrap();
        assert_eq!(lookup, Speculation::PromptLookup(PromptLookup { max_tokens: 5, min_ngram: 2 }));
        for (name, value) in [("max_tokens", 0), ("max_tokens", 8), ("min_ngram", 0), ("min_ngram", 17)] {
            let error = parse(json!({"type": "prompt_lookup", name: value})).speculation(none).unwrap_err();
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.message().contains(name), "{error}");
        }
        for (kind, option) in [("draft_model", "option draft"), ("mtp", "multiTokenPrediction")] {
            let error = parse(json!({"type": kind})).speculation(none).unwrap_err();
            assert!(error.message().contains(kind) && error.message().contains(option), "{error}");
        }
        let with = |kind: &str, has| parse(json!({"type": kind})).speculation(has).unwrap();
        assert_eq!(with("draft_model", Drafters { draft_model: true, ..none }), Speculation::DraftModel(5));
        assert_eq!(with("mtp", Drafters { mtp: true, ..none }), Speculation::Mtp(2));
    }
}
