//! The log probabilities of a chunk's tokens.

use serde::Serialize;

use crate::sampler::StepLogprobs;
use crate::text::tokenizer::Tokenizer;

/// A token of the answer, and what was most probable in its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TokenLogprobs {
    /// The chosen token.
    #[serde(flatten)]
    pub token: TokenLogprob,
    /// The most probable tokens, the most probable first. The chosen one need not be among them.
    pub top: Vec<TokenLogprob>,
    /// Where the token's text begins in the answer, in UTF-16 code units as JavaScript counts. Stop strings are counted too.
    pub offset: usize,
}

/// A token and how probable the model found it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TokenLogprob {
    /// The token's number in the vocabulary.
    pub id: u32,
    /// Its text. U+FFFD stands for a part of a character; a control token shows its name.
    pub token: String,
    /// The token's bytes in UTF-8.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability, at least -9999.
    pub logprob: f32,
}

impl TokenLogprobs {
    /// `offset` is in UTF-16 code units of the answer.
    pub fn new(tokenizer: &Tokenizer, token: u32, logprobs: &StepLogprobs, offset: usize) -> Self {
        let of = |id: u32, logprob: f32| {
            // A vocabulary may be padded with ids that the tokenizer doesn't have.
            let bytes = tokenizer.token_bytes_with_control(id).unwrap_or_default().to_vec();
            TokenLogprob { id, token: String::from_utf8_lossy(&bytes).into_owned(), bytes, logprob }
        };
        let top = logprobs.top.iter().map(|(id, logprob)| of(*id, *logprob)).collect();
        Self { token: of(token, logprobs.chosen), top, offset }
    }
}
