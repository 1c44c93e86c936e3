//! An answer that is generated again, such as after the GPU was lost, so that it goes on where it stood.

use serde::Deserialize;

/// What is known of an answer that is generated again.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The seed, for a request that has none of its own.
    pub seed: u32,
    /// The choices as far as they were handed out. Left out, all tokens are chosen again, as they were chosen then.
    #[serde(default)]
    pub choices: Vec<ReplayedChoice>,
}

/// The tokens of one choice that are known. They are taken in like a prompt and not chosen again.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayedChoice {
    /// In their order.
    pub tokens: Vec<u32>,
    /// They are the whole answer.
    pub is_finished: bool,
}
