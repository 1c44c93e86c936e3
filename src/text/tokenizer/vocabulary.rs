//! A model's vocabulary as plain data, in the terms of GGUF's metadata, and what follows from it for each token.
//!
//! Knows neither the file of the data nor the algorithm that encodes with it.

use super::special;
use crate::error::Result;

/// The tokenizer's metadata in a model's file. The fields are GGUF's `tokenizer.ggml.*` keys, not yet interpreted.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: "gpt2" (byte-level BPE), "llama" (sentencepiece BPE), "bert" (WordPiece), "t5" (unigram),
    /// "gemma4" (BPE of characters).
    pub model: String,
    /// `tokenizer.ggml.pre`: how text is cut into words for byte-level BPE.
    pub pre: Option<String>,
    /// `tokens`: the text of each id; for byte-level BPE in its alphabet of visible characters.
    pub tokens: Vec<String>,
    /// `scores`: the unigram model's log probabilities, or sentencepiece BPE's ranks. Empty if there are none.
    pub scores: Vec<f32>,
    /// 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. Empty: all normal.
    pub token_types: Vec<i32>,
    /// `left right`, in the order of their rank.
    pub merges: Vec<String>,
    /// `bos_token_id`: begins a text.
    pub bos: Option<u32>,
    /// `eos_token_id`: ends a text.
    pub eos: Option<u32>,
    /// `unknown_token_id`: replaces text that has no token.
    pub unk: Option<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// The separator after a text for an encoder.
    pub sep: Option<u32>,
    /// More tokens that end a turn: `eot_token_id`, `eom_token_id`.
    pub ends: Vec<u32>,
    /// Sentencepiece's normalisation, for "t5".
    pub charsmap: Vec<u8>,
    /// Whether runs of spaces become one and spaces around a text are removed, for "t5".
    pub remove_extra_whitespaces: Option<bool>,
    /// Whether BERT's normalizer lowercases; it does by default.
    pub lowercase: Option<bool>,
    /// Whether BERT's normalizer removes accents; by default if it lowercases.
    pub strip_accents: Option<bool>,
    /// Whether the separator is added after a text. Here and in the next three, `None` means the default of `model` and `pre`.
    pub add_sep: Option<bool>,
    /// Whether BOS is added before a text.
    pub add_bos: Option<bool>,
    /// Whether EOS is added after a text.
    pub add_eos: Option<bool>,
    /// Whether a space is added before a text, for "llama" and "t5".
    pub add_space_prefix: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Vocabulary {
    /// The types of all tokens. If the file has none, tokens that are written as a byte count as byte tokens.
    pub(super) fn types(&self) -> Result<Vec<TokenType>> {
        let n_tokens = self.tokens.len();
        if n_tokens == 0 {
            bail!(UnsupportedTokenizer, "the vocabulary has no tokens, wanted at least one");
        }
        if u32::try_from(n_tokens).is_err() {
            bail!(UnsupportedTokenizer, "the vocabulary has {n_tokens} tokens, wanted fewer than 2^32");
        }
        if self.token_types.is_empty() {
            let is_byte = |text: &String| self.model == "llama" && byte_of_token(text).is_some();
            return Ok(self
                .tokens
                .iter()
                .map(|text| if is_byte(text) { TokenType::Byte } else { TokenType::Normal })
                .collect());
        }
        if self.token_types.len() != n_tokens {
            bail!(
                UnsupportedTokenizer,
                "the vocabulary has {n_tokens} tokens but {} token types, wanted one for each",
                self.token_types.len()
            );
        }
        self.token_types
            .iter()
            .enumerate()
            .map(|(id, &number)| match number {
                1 => Ok(TokenType::Normal),
                2 => Ok(TokenType::Unknown),
                3 => Ok(TokenType::Control),
                4 => Ok(TokenType::UserDefined),
                // 0 is "undefined". Like an unused token it has no text, and encoding never gives it.
                0 | 5 => Ok(TokenType::Unused),
                6 => Ok(TokenType::Byte),
                _ => bail!(UnsupportedTokenizer, "token {id} has type {number}, wanted one of 0 to 6"),
            })
            .collect()
    }

    /// Tokens that end a generation; they become control tokens.
    pub(super) fn end_of_generation(&self, types: &mut [TokenType], eos: Option<u32>) -> Result<Vec<u32>> {
        let mut named: Vec<u32> = eos.into_iter().collect();
        for &id in &self.ends {
            named.extend(self.checked_id("end-of-turn", Some(id))?);
        }
        Ok(special::end_of_generation(self.tokens.iter().map(String::as_str), types, &named))
    }

    /// An id from the metadata, checked against the number of tokens.
    pub(super) fn checked_id(&self, name: &str, id: Option<u32>) -> Result<Option<u32>> {
        match id {
            Some(id) if id as usize >= self.tokens.len() => bail!(
                UnsupportedTokenizer,
                "the {name} token has id {id}, wanted an id below the number of tokens, {}",
                self.tokens.len()
            ),
            id => Ok(id),
        }
    }
}

/// The byte that a sentencepiece byte token such as `<0x0A>` stands for.
pub(super) fn byte_of_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes of all tokens in one allocation: a vocabulary has up to about 260,000 of them.
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl TokenBytes {
    pub(super) fn with_capacity(n_tokens: usize) -> Self {
        Self { bytes: Vec::with_capacity(n_tokens * 8), ends: Vec::with_capacity(n_tokens) }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        Some(&self.bytes[start..end])
    }
}
