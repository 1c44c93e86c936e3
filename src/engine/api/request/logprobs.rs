//! Log probabilities of tokens. Chats and completions ask for them in different ways.

use super::group;
use crate::error::Result;
use crate::sampler::MAX_TOP_LOGPROBS;

group! {
    /// How probable the tokens of an answer to a chat are.
    #[derive(Clone, Copy, Debug)]
    pub struct ChatLogprobsFields {
        /// Return how probable each of `token_ids` was, also the one that ends the answer. These are always the model's own probabilities
        /// (softmax of its logits), before temperature, truncation, bias and penalties, as by default in vLLM and llama.cpp. Default:
        /// false.
        pub logprobs: Option<bool>,
        /// With `logprobs`: how many of the most probable tokens come with each token, 0 to 20. Default: 0.
        pub top_logprobs: Option<u64>,
    }
}

group! {
    /// How probable the tokens of a completion are.
    #[derive(Clone, Copy, Debug)]
    pub struct CompletionLogprobsFields {
        /// Return how probable the tokens were: the same as for chats, in another shape. The number, 0 to 20, says how many of the most
        /// probable tokens come with each.
        pub logprobs: Option<u64>,
    }
}

impl ChatLogprobsFields {
    /// How many of the most probable tokens come with each, if log probabilities are wanted.
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
