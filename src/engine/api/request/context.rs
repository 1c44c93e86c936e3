//! What happens when the context is full.

use serde::Deserialize;

use super::fields::group;

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct ContextFields {
        /// Goes on where the context is full, without its older tokens (`context_shift.rs`). An extension.
        pub context_shift: Option<ContextShiftRequest>,
    }
}

/// What a request may ask for: `true`, or how many tokens stay.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "wanted true, false or {\"sinks\": number of tokens}")]
pub enum ContextShiftRequest {
    Wanted(bool),
    Sinks(Sinks),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sinks {
    #[serde(default)]
    pub sinks: Option<u64>,
}
