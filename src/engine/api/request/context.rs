//! What happens when the context is full.

use serde::Deserialize;

use super::fields::group;
use crate::decode::ContextShift;
use crate::error::Result;

/// Tokens at the beginning that stay by default: attention relies on the first ones, whatever they say, and four are enough (Xiao et al.
/// 2023).
const DEFAULT_SINKS: u64 = 4;

group! {
    /// What happens when the context is full.
    #[derive(Clone, Copy, Debug)]
    pub struct ContextFields {
        /// Go on when the context is full, instead of ending with `length`. The first `sinks` tokens stay, the older half of the rest is
        /// dropped, and the others move up (StreamingLLM). The model forgets what was dropped; `timings` say how often and how much. A
        /// prompt still has to fit the context. The next request finds only the sinks in the KV cache. Not for models with learned
        /// positions (GPT-2). Default: false. An extension.
        pub context_shift: Option<ContextShiftRequest>,
    }
}

/// Whether the context shifts. An object also says how many tokens stay.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged, expecting = "wanted true, false or {\"sinks\": number of tokens}")]
pub enum ContextShiftRequest {
    /// `true` keeps 4 tokens, or half of a context shorter than 8.
    Wanted(bool),
    /// Shifts, and says how many tokens stay.
    Sinks(Sinks),
}

/// The beginning of the context, which stays when it shifts.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Sinks {
    /// How many tokens stay, 0 to half of the context. Default: 4.
    #[serde(default)]
    pub sinks: Option<u64>,
}

impl ContextShiftRequest {
    /// For a context of `capacity` tokens.
    pub(in crate::engine::api) fn context_shift(self, capacity: usize) -> Result<Option<ContextShift>> {
        let most = capacity as u64 / 2;
        let sinks = match self {
            ContextShiftRequest::Wanted(false) => return Ok(None),
            ContextShiftRequest::Wanted(true) | ContextShiftRequest::Sinks(Sinks { sinks: None }) => {
                DEFAULT_SINKS.min(most)
            }
            ContextShiftRequest::Sinks(Sinks { sinks: Some(sinks) }) if sinks <= most => sinks,
            ContextShiftRequest::Sinks(Sinks { sinks: Some(sinks) }) => {
                bail!(InvalidRequest, "context_shift.sinks is {sinks}, wanted 0 to {most}, half of the context")
            }
        };
        Ok(Some(ContextShift { sinks: sinks as usize }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn a_request_says_how_many_tokens_stay() {
        let new = |request: serde_json::Value| {
            serde_json::from_value::<ContextShiftRequest>(request).map(|request| request.context_shift(64))
        };
        let sinks = |request| new(request).unwrap().unwrap().map(|shift| shift.sinks);
        assert_eq!(sinks(serde_json::json!(false)), None);
        assert_eq!(sinks(serde_json::json!(true)), Some(4));
        assert_eq!(sinks(serde_json::json!({})), Some(4));
        assert_eq!(sinks(serde_json::json!({"sinks": 0})), Some(0));
        assert_eq!(sinks(serde_json::json!({"sinks": 32})), Some(32));
        let error = new(serde_json::json!({"sinks": 33})).unwrap().unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("context_shift.sinks is 33, wanted 0 to 32"), "{error}");
        for request in [serde_json::json!({"sinks": -1}), serde_json::json!({"keep": 4}), serde_json::json!("yes")] {
            assert!(new(request).is_err());
        }
    }
}
