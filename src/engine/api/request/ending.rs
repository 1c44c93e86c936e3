//! What ends an answer.

use serde::Deserialize;

use super::group;
use crate::engine::api::answer::AnswerRequest;
use crate::error::Result;
use crate::text::stop::StopStrings;

/// Stop strings that a request may name, as in OpenAI's API.
const MAX_STOPS: usize = 4;
const MAX_STOP_TOKENS: usize = 64;

group! {
    #[derive(Clone, Debug)]
    pub struct EndingFields {
        pub max_tokens: Option<u64>,
        /// OpenAI's newer name of the same for chats.
        pub max_completion_tokens: Option<u64>,
        pub stop: Option<Stop>,
        /// Tokens that end the answer. With the two below an extension, in vLLM's words.
        #[serde(default)]
        pub stop_token_ids: Vec<u32>,
        /// Whether what stopped it is part of the answer.
        #[serde(default)]
        pub include_stop_str_in_output: bool,
        /// Goes on past the end of the model's turn; for benchmarks.
        #[serde(default)]
        pub ignore_eos: bool,
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Stop {
    One(String),
    Many(Vec<String>),
}

impl EndingFields {
    /// The most tokens of the answer.
    pub(in crate::engine::api) fn longest(&self) -> Result<Option<usize>> {
        let (name, longest) = match (self.max_tokens, self.max_completion_tokens) {
            (Some(_), Some(_)) => {
                bail!(InvalidRequest, "max_tokens and max_completion_tokens are one setting; give only one of them")
            }
            (None, longest) => ("max_completion_tokens", longest),
            (longest, None) => ("max_tokens", longest),
        };
        match longest {
            Some(0) => bail!(InvalidRequest, "{name} is 0, wanted at least 1"),
            longest => Ok(longest.map(|longest| usize::try_from(longest).unwrap_or(usize::MAX))),
        }
    }

    /// How the answer is read as far as its end goes, for a vocabulary of so many tokens. It doesn't end before it has `min_tokens`.
    pub(in crate::engine::api) fn answer(&self, vocab_size: usize, min_tokens: u32) -> Result<AnswerRequest> {
        if self.stop_token_ids.len() > MAX_STOP_TOKENS {
            bail!(
                InvalidRequest,
                "stop_token_ids has {} tokens, wanted at most {MAX_STOP_TOKENS}",
                self.stop_token_ids.len()
            );
        }
        if let Some(id) = self.stop_token_ids.iter().find(|id| **id as usize >= vocab_size) {
            bail!(InvalidRequest, "stop_token_ids has {id}, wanted ids below {vocab_size}, the size of the vocabulary");
        }
        Ok(AnswerRequest {
            stop: self.stops()?,
            min_tokens: min_tokens as usize,
            include_stop: self.include_stop_str_in_output,
            stop_tokens: self.stop_token_ids.clone(),
            ..AnswerRequest::default()
        })
    }

    fn stops(&self) -> Result<StopStrings> {
        let stops = match &self.stop {
            None => vec![],
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Many(stops)) => stops.clone(),
        };
        if stops.len() > MAX_STOPS {
            bail!(InvalidRequest, "stop has {} strings, wanted at most {MAX_STOPS}", stops.len());
        }
        StopStrings::new(stops)
    }
}
