//! How work saves memory where the GPU has no room for it, and whether it waits. Who decides that is `room.rs`.

use super::cancel::Canceller;
use super::prefill_pace::MAX_TOKENS;

/// How work is to save memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relief {
    /// What a slot loses goes to the prompt cache.
    pub keeps_texts: bool,
    /// The most tokens of a pass over a prompt.
    pub most_tokens: usize,
}

impl Default for Relief {
    fn default() -> Self {
        Self { keeps_texts: true, most_tokens: MAX_TOKENS }
    }
}

/// Whether work waits for others where nothing else helps.
#[derive(Clone, Debug)]
pub enum Patience {
    /// Until it is cancelled.
    Waits(Canceller),
    /// The caller has what others would have to give back.
    Fails,
}
