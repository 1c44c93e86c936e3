//! What ends an answer.

use serde::Deserialize;

use super::group;
use crate::engine::api::answer::AnswerRequest;
use crate::error::Result;
use crate::text::stop::StopStrings;

/// The most stop strings of a request, as in OpenAI's API.
const MAX_STOPS: usize = 4;
/// The most bytes of one.
const LONGEST_STOP: usize = 16_384;
const MAX_STOP_TOKENS: usize = 64;

group! {
    /// What ends an answer.
    #[derive(Clone, Debug)]
    pub struct EndingFields {
        /// The most tokens of the answer. Default: what the context has room for; with `context_shift` no limit.
        pub max_tokens: Option<u64>,
        /// OpenAI's newer name of `max_tokens`.
        pub max_completion_tokens: Option<u64>,
        /// Texts (at most 4, each of at most 16,384 bytes) that end the answer and are not part of it. They also count in reasoning and calls.
        pub stop: Option<Stop>,
        /// Tokens (at most 64) that end the answer; their text is not part of it. This and the next field are extensions, with vLLM's
        /// names.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<Vec<u32>>"))]
        pub stop_token_ids: Vec<u32>,
        /// Keep what matched `stop` or `stop_token_ids` in the answer. Default: false.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub include_stop_str_in_output: bool,
        /// Continue after the model's end-of-text token. For benchmarks; an extension. Default: false.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub ignore_eos: bool,
    }
}

/// One text or several.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum Stop {
    /// A single text.
    One(String),
    /// Up to 4; the first one that the answer writes ends it.
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

    /// How the end of the answer is found: not before it has `min_tokens`. Stop tokens must be below `vocab_size`.
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
        if let Some(stop) = stops.iter().find(|stop| stop.len() > LONGEST_STOP) {
            bail!(InvalidRequest, "stop has a string of {} bytes, wanted at most {LONGEST_STOP}", stop.len());
        }
        StopStrings::new(stops)
    }
}
