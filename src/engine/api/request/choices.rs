//! How many answers.

use super::group;
use crate::error::Result;

/// The most choices of a request.
const MAX_CHOICES: usize = 128;

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct ChoicesFields {
        /// So many answers to the prompt; number i draws its tokens with the seed + i.
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
