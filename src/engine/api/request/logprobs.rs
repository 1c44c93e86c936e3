//! Log probabilities of the tokens. Chats and completions have other fields of the same name for them.

use super::group;
use crate::error::Result;
use crate::sampler::MAX_TOP_LOGPROBS;

group! {
    /// How probable the tokens of an answer to a chat are.
    #[derive(Clone, Copy, Debug)]
    pub struct ChatLogprobsFields {
        /// Say how probable the tokens are: one entry for each of `token_ids`, the one that ends the answer too. Always those of the model
        /// (softmax of its logits), whatever temperature, truncation, bias or penalties make of them. (So it is with vLLM's default and
        /// llama.cpp's; OpenAI does not say.) Default: false.
        pub logprobs: Option<bool>,
        /// With `logprobs`: how many of the most probable tokens come with each token, 0 (the default) to 20.
        pub top_logprobs: Option<u64>,
    }
}

group! {
    /// How probable the tokens of a completion are.
    #[derive(Clone, Copy, Debug)]
    pub struct CompletionLogprobsFields {
        /// Say how probable the tokens are, and how many of the most probable ones come with each, 0 to 20: as `logprobs` of chats, in
        /// another shape.
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
