//! Token ids to text, token by token. Text that was returned is final.
//!
//! A token may end inside a UTF-8 character. So bytes wait here until their character is complete or can't become complete any more. Must
//! not know where ids come from or where the text goes.

use super::tokenizer::{Joining, Tokenizer};
use crate::error::Result;

/// Decodes a stream of ids. All pieces together are the result of [`Tokenizer::decode`] for all ids.
///
/// Every call gets the tokenizer, instead of borrowing it, so that a decoder can be part of a session.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    /// The incomplete character at the end: at most three bytes.
    pending: Vec<u8>,
    /// A character to remove at the beginning of the text, and how many times.
    strip: Option<(char, usize)>,
    /// Set until the first token with text.
    first: bool,
    /// Whether all control tokens are written out.
    control: bool,
    /// Control tokens that are written out in any case.
    shown: Vec<u32>,
    /// The last token's bytes: first if another token follows, then if none does.
    held: Option<(Vec<u8>, Vec<u8>)>,
    /// For a tokenizer that decodes only all ids together: the ids, and their text so far.
    whole: (Vec<u32>, String),
}

impl StreamDecoder {
    /// A decoder for ids at the beginning of a text, such as a chat's answer.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let strip = match tokenizer.joining() {
            Joining::Plain { content, n } if n > 0 => Some((content, n)),
            _ => None,
        };
        Self { strip, first: true, ..Self::default() }
    }

    /// A decoder for ids that continue a text, such as the completion of a prompt: a leading space belongs to it.
    pub fn continuing() -> Self {
        Self::default()
    }

    /// Like [`StreamDecoder::new`], but control tokens are written out.
    fn with_control(tokenizer: &Tokenizer) -> Self {
        Self { control: true, ..Self::new(tokenizer) }
    }

    /// Writes these control tokens out, and no others.
    pub fn showing(self, ids: Vec<u32>) -> Self {
        Self { shown: ids, ..self }
    }

    /// Whether the tokens so far end within a character.
    pub fn is_within_character(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The text that became final with this token; empty while a character is incomplete. A model may have more ids than its tokenizer, which
    /// make its tables a round size: they have no text.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        if id as usize >= tokenizer.vocab_size() {
            return Ok(String::new());
        }
        let is_shown = self.control || self.shown.contains(&id);
        let bytes = if is_shown { tokenizer.token_bytes_with_control(id)? } else { tokenizer.token_bytes(id)? };
        // Control tokens end here too: they don't count as neighbours.
        if bytes.is_empty() {
            return Ok(String::new());
        }
        match tokenizer.joining() {
            Joining::Plain { .. } => self.pending.extend_from_slice(bytes),
            Joining::First if self.first => self.pending.extend_from_slice(&tokenizer.bytes_at(id, true)?),
            Joining::First => self.pending.extend_from_slice(bytes),
            Joining::Last => {
                if let Some((followed, _)) = self.held.take() {
                    self.pending.extend(followed);
                }
                let last = tokenizer.bytes_at(id, false)?;
                let same = bytes.iter().zip(last.iter()).take_while(|(a, b)| a == b).count();
                self.pending.extend_from_slice(&bytes[..same]);
                self.held = Some((bytes[same..].to_vec(), last[same..].to_vec()));
            }
            Joining::Whole => {
                let (ids, text) = &mut self.whole;
                ids.push(id);
                *text = tokenizer.whole(ids)?;
            }
        }
        self.first = false;
        Ok(self.take_final())
    }

    /// The rest: an incomplete character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        if let Some((_, last)) = self.held.take() {
            self.pending.extend(last);
        }
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned();
        let mut rest = self.stripped(rest);
        rest.push_str(&std::mem::take(&mut self.whole).1);
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
            // `error_len` is `None` if more bytes could complete the character.
            let could_go_on = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if could_go_on && done == self.pending.len() {
                incomplete = invalid.len();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending.drain(..self.pending.len() - incomplete);
        self.stripped(text)
    }

    /// `text` without the characters that must be removed at the beginning of the stream.
    fn stripped(&mut self, mut text: String) -> String {
        while let Some((content, n)) = self.strip {
            let Some(first) = text.chars().next() else {
                break;
            };
            self.strip = (first == content && n > 1).then_some((content, n - 1));
            if first == content {
                text.remove(0);
            }
        }
        text
    }
}

impl Tokenizer {
    /// The text of `ids` in the form that `encode` reads with `parse_special`: control tokens are written out.
    pub fn decode_with_control(&self, ids: &[u32]) -> Result<String> {
        self.decode_by(StreamDecoder::with_control(self), ids)
    }

    /// The text of `ids`. Control tokens have no text, and bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.decode_by(StreamDecoder::new(self), ids)
    }

    fn decode_by(&self, mut decoder: StreamDecoder, ids: &[u32]) -> Result<String> {
        let mut text = String::new();
        for &id in ids {
            // A stream takes an id beyond the tokenizer's as one without text; here it is a mistake of the caller's.
            self.token_bytes(id)?;
            text.push_str(&decoder.push(self, id)?);
        }
        text.push_str(&decoder.finish());
        Ok(text)
    }
}
