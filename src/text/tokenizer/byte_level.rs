//! Byte-level BPE ("gpt2" in GGUF): text is cut into words, whose UTF-8 bytes are written as printable characters. The `tokenizers` crate
//! merges these by rank.
//!
//! Knows nothing of special tokens: the text here contains none.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Vocab};

use super::pattern::Pattern;
use super::pre::PreTokenizer;
use super::vocabulary::{TokenType, Vocabulary};
use crate::error::Result;

pub(super) struct ByteLevelBpe {
    model: BPE,
    splits: Vec<Pattern>,
    /// Bytes that have no token.
    missing_bytes: [bool; 256],
}

impl ByteLevelBpe {
    pub(super) fn new(vocabulary: &Vocabulary, types: &[TokenType], pre: &PreTokenizer) -> Result<Self> {
        let mut longest = 0;
        let mut n_entries = 0;
        // Control and unknown tokens are left out: ordinary text must not become one of them.
        let vocab: Vocab = vocabulary
            .tokens
            .iter()
            .zip(types)
            .zip(0u32..)
            .filter(|((text, kind), _)| !matches!(kind, TokenType::Control | TokenType::Unknown) && !text.is_empty())
            .map(|((text, _), id)| {
                longest = longest.max(text.len());
                n_entries += 1;
                (text.clone(), id)
            })
            .collect();
        if vocab.len() != n_entries {
            bail!(
                UnsupportedTokenizer,
                "the vocabulary has {} tokens that are written like another one, wanted each text once",
                n_entries - vocab.len()
            );
        }
        let merges = vocabulary
            .merges
            .iter()
            .enumerate()
            .map(|(rank, merge)| match split_merge(merge) {
                // The crate assumes that no merge is longer than the longest token.
                Some((left, right)) if left.len() + right.len() <= longest => Ok((left.to_owned(), right.to_owned())),
                Some(_) => bail!(UnsupportedTokenizer, "merge {rank} ({merge:?}) makes no token of the vocabulary"),
                None => bail!(UnsupportedTokenizer, "merge {rank} is {merge:?}, wanted two parts with a space between"),
            })
            .collect::<Result<Vec<_>>>()?;
        // An unknown or control token is no entry of the model; a byte without a token is then dropped.
        let unk = vocabulary.unk.map(|id| id as usize);
        let unk = unk.filter(|&id| !matches!(types.get(id), None | Some(TokenType::Control | TokenType::Unknown)));
        let unk = unk.and_then(|id| vocabulary.tokens.get(id)).filter(|text| !text.is_empty());
        let mut builder = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(pre.ignore_merges)
            // The cache is in a thread-local map that outlives the model, so every reload would leave one there.
            .cache_capacity(0);
        if let Some(unk) = unk {
            builder = builder.unk_token(unk.clone());
        }
        let model = builder
            .build()
            .map_err(|cause| err!(UnsupportedTokenizer, "the merges don't fit the vocabulary: {cause}"))?;
        let mut missing_bytes = [false; 256];
        for (byte, missing) in missing_bytes.iter_mut().enumerate() {
            let mut text = [0; 4];
            *missing = unk.is_none() && model.token_to_id(BYTE_TO_CHAR[byte].encode_utf8(&mut text)).is_none();
        }
        let splits = pre.patterns.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<Vec<_>>>()?;
        Ok(Self { model, splits, missing_bytes })
    }

    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        self.model.token_to_id(text)
    }

    /// Appends the ids of `text`.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut mapped = String::new();
        for word in self.words(text)? {
            mapped.clear();
            for byte in word.bytes() {
                mapped.push(BYTE_TO_CHAR[usize::from(byte)]);
            }
            let is_missing = |byte: &u8| self.missing_bytes[usize::from(*byte)];
            if !word.bytes().any(|byte| is_missing(&byte)) || self.model.token_to_id(&mapped).is_some() {
                self.merge(&mapped, ids)?;
                continue;
            }
            // What has no token is dropped, and nothing is merged across it, as in llama.cpp.
            for piece in word.as_bytes().split(is_missing).filter(|piece| !piece.is_empty()) {
                let mapped: String = piece.iter().map(|byte| BYTE_TO_CHAR[usize::from(*byte)]).collect();
                self.merge(&mapped, ids)?;
            }
        }
        Ok(())
    }

    /// Appends the ids of a word that is written in GPT-2's alphabet.
    fn merge(&self, word: &str, ids: &mut Vec<u32>) -> Result<()> {
        let tokens =
            self.model.tokenize(word).map_err(|cause| err!(Internal, "byte-level BPE failed on {word:?}: {cause}"))?;
        ids.extend(tokens.into_iter().map(|token| token.id));
        Ok(())
    }

    /// Cuts text with all expressions. Words are the matches and the texts between them.
    fn words<'t>(&self, text: &'t str) -> Result<Vec<&'t str>> {
        let mut words = vec![text];
        for split in &self.splits {
            let mut finer = Vec::with_capacity(words.len() * 2);
            // A text has its words many times, and a search in the browser's engine costs more than what it searches.
            let mut known: HashMap<&str, Vec<Range<usize>>> = HashMap::new();
            for piece in words {
                let mut done = 0;
                let places = match known.entry(piece) {
                    Entry::Occupied(places) => places.into_mut(),
                    Entry::Vacant(place) => place.insert(split.find_all(piece)?),
                };
                for found in places {
                    finer.push(&piece[done..found.start]);
                    finer.push(&piece[found.clone()]);
                    done = found.end;
                }
                finer.push(&piece[done..]);
            }
            finer.retain(|piece| !piece.is_empty());
            words = finer;
        }
        Ok(words)
    }
}

/// Splits `left right` at the first space that is not the first character.
pub(super) fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge.get(first..)?.find(' ')?;
    let (left, right) = (&merge[..space], &merge[space + 1..]);
    (!right.is_empty()).then_some((left, right))
}

/// The bytes of a token of a byte-level vocabulary. If a token has characters outside of the byte alphabet, its text is taken literally.
pub(super) fn bytes_of_token(text: &str, bytes: &mut Vec<u8>) {
    bytes.clear();
    for character in text.chars() {
        match char_to_byte(character) {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.clear();
                bytes.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

/// Bytes that GPT-2's alphabet writes as the character with the same number. The others are written as the characters from 256 on, in
/// order. Source: `bytes_to_unicode` in OpenAI's gpt-2 `encoder.py`.
const fn is_printable(byte: usize) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

const BYTE_TO_CHAR: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut byte = 0;
    let mut next: u32 = 256;
    while byte < 256 {
        let number = if is_printable(byte) {
            byte as u32
        } else {
            next += 1;
            next - 1
        };
        // All numbers are below 0x144, where there are no surrogates.
        table[byte] = match char::from_u32(number) {
            Some(character) => character,
            None => '\0',
        };
        byte += 1;
    }
    table
};

/// The number of bytes that are not printable, so of the characters from 256 on.
const N_SHIFTED: usize = 68;

const SHIFTED_BYTES: [u8; N_SHIFTED] = {
    let mut table = [0; N_SHIFTED];
    let (mut byte, mut n) = (0, 0);
    while byte < 256 {
        if !is_printable(byte) {
            table[n] = byte as u8;
            n += 1;
        }
        byte += 1;
    }
    table
};

fn char_to_byte(character: char) -> Option<u8> {
    match character as usize {
        number @ 0..256 => is_printable(number).then_some(number as u8),
        number => SHIFTED_BYTES.get(number - 256).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_alphabet_is_a_bijection() {
        for byte in 0..=255u8 {
            assert_eq!(char_to_byte(BYTE_TO_CHAR[usize::from(byte)]), Some(byte));
        }
        assert_eq!(BYTE_TO_CHAR[usize::from(b' ')], 'Ġ');
        assert_eq!(BYTE_TO_CHAR[usize::from(b'\n')], 'Ċ');
        assert_eq!(char_to_byte('\u{144}'), None);
    }

    #[test]
    fn merges_are_split_at_the_right_space() {
        assert_eq!(split_merge("Ġ t"), Some(("Ġ", "t")));
        assert_eq!(split_merge("  b"), Some((" ", "b")));
        assert_eq!(split_merge("ab"), None);
        assert_eq!(split_merge("a "), None);
        assert_eq!(split_merge(""), None);
    }

    #[test]
    fn every_expression_compiles() {
        for name in super::super::pre::supported() {
            let pre = super::super::pre::pre_tokenizer(Some(name)).unwrap();
            for pattern in pre.patterns {
                assert!(Pattern::new(pattern).is_ok(), "{name}: {pattern}");
            }
        }
    }
}
