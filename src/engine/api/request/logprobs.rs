//! Log probabilities of the tokens. Chats and completions have other fields of the same name for them.

use super::group;
use crate::error::Result;
use crate::sampler::MAX_TOP_LOGPROBS;

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct ChatLogprobsFields {
        /// They come with the tokens.
        pub logprobs: Option<bool>,
        /// Those of so many of the most probable tokens too.
        pub top_logprobs: Option<u64>,
    }
}

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct CompletionLogprobsFields {
        /// They come with the tokens, and with those of so many of the most probable ones.
        pub logprobs: Option<u64>,
    }
}

impl ChatLogprobsFields {
    /// Of how many of the most probable tokens, if they are wanted.
    pub(in crate::engine::api) fn wanted(&self) -> Result<Option<usize>> {
        match (self.logprobs, self.top_logprobs) {
            (Some(true), top) => within("top_logprobs", top.unwrap_or(0)).map(Some),
            (_, Some(top)) => {
                bail!(InvalidRequest, "top_logprobs is {top} without logprobs: true; set it, or leave both out")
            }
            _ => Ok(None),
        }
    }
}

impl CompletionLogprobsFields {
    pub(in crate::engine::api) fn wanted(&self) -> Result<Option<usize>> {
        self.logprobs.map(|top| within("logprobs", top)).transpose()
    }
}

fn within(name: &str, top: u64) -> Result<usize> {
    match usize::try_from(top) {
        Ok(top) if top <= MAX_TOP_LOGPROBS => Ok(top),
        _ => bail!(InvalidRequest, "{name} is {top}, wanted 0 to {MAX_TOP_LOGPROBS}"),
    }
}
