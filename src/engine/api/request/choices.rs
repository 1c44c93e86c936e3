//! The number of answers.

use super::group;
use crate::error::Result;

/// The most choices of a request.
const MAX_CHOICES: usize = 128;

group! {
    /// The number of answers.
    #[derive(Clone, Copy, Debug)]
    pub struct ChoicesFields {
        /// How many answers to the prompt, 1 to 128. Default: 1. Answer i uses the seed + i. `maxSequences` says how many are generated at
        /// the same time. The prompt is taken in once, and counts once in `usage`.
        pub n: Option<u64>,
    }
}

impl ChoicesFields {
    pub(in crate::engine::api) fn count(&self) -> Result<usize> {
        match self.n.unwrap_or(1) {
            n if (1..=MAX_CHOICES as u64).contains(&n) => Ok(n as usize),
            n => bail!(InvalidRequest, "n is {n}, wanted 1 to {MAX_CHOICES}"),
        }
    }
}
