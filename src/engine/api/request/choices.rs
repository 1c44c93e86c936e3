//! How many answers.

use super::group;
use crate::error::Result;

/// The most choices of a request.
const MAX_CHOICES: usize = 128;

group! {
    /// How many answers.
    #[derive(Clone, Copy, Debug)]
    pub struct ChoicesFields {
        /// The number of answers to the prompt, 1 (the default) to 128. Answer i draws its tokens with the seed + i. With `maxSequences`
        /// they are generated together, as many as that allows; otherwise one after another. The prompt is taken in once, and counts
        /// once in `usage`.
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
