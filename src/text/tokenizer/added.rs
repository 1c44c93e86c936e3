//! Added tokens: tokens of a tokenizer.json that are cut out of a text before anything else happens to it, or after it was normalized.
//!
//! The rules are those of the crate's `AddedVocabulary`, which would bring an engine for expressions with it and drops errors of
//! normalizers.

use std::collections::HashSet;
use std::ops::Range as Place;

use tokenizers::normalizer::Range;
use tokenizers::{AddedToken, NormalizedString, PreTokenizedString, Token};

use super::normalizers::Normalizers;
use super::pattern::Pattern;
use super::token_finder::TokenFinder;
use crate::error::Result;

/// An added token and its id.
#[derive(Clone, Debug)]
pub(super) struct Added {
    pub id: u32,
    pub token: AddedToken,
}

/// Cuts added tokens out of texts.
pub(super) struct AddedTokens {
    tokens: Vec<Added>,
    /// Ids here are indices of `tokens`.
    in_text: TokenFinder,
    in_normalized_text: TokenFinder,
    /// A character of a word, where a token wants to be a word of its own.
    word: Option<Pattern>,
}

impl AddedTokens {
    pub(super) fn new<'a>(tokens: impl Iterator<Item = &'a Added>, normalizers: &Normalizers) -> Result<Self> {
        let tokens: Vec<Added> = tokens.cloned().collect();
        let (mut in_text, mut in_normalized_text) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (index, Added { token, .. }) in (0u32..).zip(&tokens) {
            if token.normalized {
                let mut text = NormalizedString::from(token.content.as_str());
                normalizers.normalize(&mut text).map_err(|cause| {
                    err!(UnsupportedTokenizer, "the added token {:?} of the tokenizer: {cause}", token.content)
                })?;
                if text.is_empty() || !seen.insert(text.get().to_owned()) {
                    bail!(
                        UnsupportedTokenizer,
                        "added token {:?} of the tokenizer is normalized to {:?}, like another one or to nothing",
                        token.content,
                        text.get()
                    );
                }
                in_normalized_text.push((text.get().to_owned(), index));
            } else {
                in_text.push((token.content.clone(), index));
            }
        }
        let wants_word = tokens.iter().any(|added| added.token.single_word);
        Ok(Self {
            in_text: TokenFinder::new(in_text)?,
            in_normalized_text: TokenFinder::new(in_normalized_text)?,
            word: wants_word.then(|| Pattern::new(r"\w")).transpose()?,
            tokens,
        })
    }

    /// The text with added tokens as tokens, and the rest normalized.
    pub(super) fn cut(&self, text: &str, normalizers: &Normalizers) -> tokenizers::Result<PreTokenizedString> {
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, piece| self.pieces(&piece, &self.in_text))?;
        pieces.split(|_, mut piece| {
            normalizers.normalize(&mut piece)?;
            self.pieces(&piece, &self.in_normalized_text)
        })?;
        Ok(pieces)
    }

    fn pieces(
        &self,
        text: &NormalizedString,
        finder: &TokenFinder,
    ) -> tokenizers::Result<Vec<(NormalizedString, Option<Vec<Token>>)>> {
        let mut pieces = Vec::new();
        let mut push = |Place { start, end }: Place<usize>, id: Option<u32>| {
            let piece = text.slice(Range::Normalized(start..end)).ok_or("an added token has no place in the text")?;
            let token = id.map(|id| vec![Token::new(id, piece.get().to_owned(), (0, end - start))]);
            pieces.push((piece, token));
            Ok::<_, tokenizers::Error>(())
        };
        let mut done = 0;
        for (place, index) in finder.find_all(text.get()) {
            let Added { id, token } = &self.tokens[index as usize];
            let (before, after) = (&text.get()[..place.start], &text.get()[place.end..]);
            if token.single_word && (self.is_word(before.chars().next_back())? || self.is_word(after.chars().next())?) {
                continue;
            }
            // Blanks may belong to the token before.
            let start = if token.lstrip { before.trim_end().len().max(done) } else { place.start };
            let blanks = if token.rstrip { after.len() - after.trim_start().len() } else { 0 };
            let end = place.end + blanks;
            if done < start {
                push(done..start, None)?;
            }
            push(start..end, Some(*id))?;
            done = end;
        }
        if done < text.len() || text.is_empty() {
            push(done..text.len(), None)?;
        }
        Ok(pieces)
    }

    /// Whether a character beside a token belongs to a word.
    fn is_word(&self, character: Option<char>) -> Result<bool> {
        match (&self.word, character) {
            (Some(word), Some(character)) => Ok(!word.find_all(character.encode_utf8(&mut [0; 4]))?.is_empty()),
            _ => Ok(false),
        }
    }
}
