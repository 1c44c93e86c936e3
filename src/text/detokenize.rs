//! Token ids to text, token by token: what is handed out is final.
//!
//! A token may end in the middle of a UTF-8 character, so bytes wait here until their character is complete or can't be
//! completed any more. Must not know how ids came about or where the text goes.

use super::tokenizer::Tokenizer;
use crate::error::Result;

/// Decodes a stream of ids. All pieces together are what [`Tokenizer::decode`] gives for all ids together.
///
/// The tokenizer is passed to every call instead of being borrowed, so that a decoder can live in a session.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    /// The beginning of a character: at most three bytes.
    pending: Vec<u8>,
    /// Set until the first token with text: sentencepiece put a space there that the text didn't have.
    strip_space: bool,
}

impl StreamDecoder {
    /// A decoder for ids that stand at the beginning of a text, such as the answer in a chat.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self { pending: Vec::new(), strip_space: tokenizer.adds_space_prefix() }
    }

    /// A decoder for ids that continue a text, such as a completion of a prompt: a leading space is part of it.
    pub fn continuing() -> Self {
        Self { pending: Vec::new(), strip_space: false }
    }

    /// The text that became final with this token; empty while a character is incomplete.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        let mut bytes = tokenizer.token_bytes(id)?;
        if bytes.is_empty() {
            return Ok(String::new());
        }
        if self.strip_space {
            self.strip_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        Ok(self.take_final())
    }

    /// The rest: a character that stayed incomplete becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }

    /// Decodes as `String::from_utf8_lossy` does, but leaves an incomplete character at the end in `pending`.
    fn take_final(&mut self) -> String {
        let mut text = String::with_capacity(self.pending.len());
        let mut done = 0;
        let mut incomplete = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            done += chunk.valid().len() + invalid.len();
            if invalid.is_empty() {
                continue;
            }
            // `error_len` is none where more bytes could still make a character of it.
            let could_go_on = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if could_go_on && done == self.pending.len() {
                incomplete = invalid.len();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending.drain(..self.pending.len() - incomplete);
        text
    }
}
