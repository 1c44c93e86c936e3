//! Finds tokens that are written in a text: the leftmost first, and of several at one place the longest.
//!
//! The tokens stand in order. The last one that is not greater than the rest of a text begins like it, or has in front of it in the order
//! the tokens that do.

use std::ops::Range;

use crate::error::Result;

/// No special token is longer. Where many begin alike, a search takes time in proportion to their length.
const LONGEST_TOKEN: usize = 1 << 12;

#[derive(Clone, Debug, Default)]
pub(super) struct TokenFinder {
    /// In the order of their bytes.
    tokens: Vec<Entry>,
    /// Whether a token begins with a byte.
    begins: Vec<bool>,
}

#[derive(Clone, Debug)]
struct Entry {
    text: String,
    id: u32,
    /// The longest other token that this one begins with.
    shorter: Option<usize>,
}

impl TokenFinder {
    /// Of tokens with one text the first is found. Empty ones are left out.
    pub(super) fn new(tokens: impl IntoIterator<Item = (String, u32)>) -> Result<Self> {
        let tokens = tokens.into_iter().filter(|(text, _)| !text.is_empty());
        let mut tokens: Vec<Entry> = tokens.map(|(text, id)| Entry { text, id, shorter: None }).collect();
        if let Some(Entry { text, .. }) = tokens.iter().find(|token| token.text.len() > LONGEST_TOKEN) {
            bail!(
                UnsupportedTokenizer,
                "a special token of the tokenizer has {} bytes, wanted at most {LONGEST_TOKEN}",
                text.len()
            );
        }
        tokens.sort_by(|left, right| left.text.cmp(&right.text));
        tokens.dedup_by(|later, first| later.text == first.text);
        let mut begins = vec![false; 256];
        for at in 0..tokens.len() {
            begins[usize::from(tokens[at].text.as_bytes()[0])] = true;
            let mut shorter = at.checked_sub(1);
            while let Some(candidate) = shorter.filter(|&other| !tokens[at].text.starts_with(&tokens[other].text)) {
                shorter = tokens[candidate].shorter;
            }
            tokens[at].shorter = shorter;
        }
        Ok(Self { tokens, begins })
    }

    /// The places of tokens in a text, from left to right and none within another, with the tokens' ids.
    pub(super) fn find_all(&self, text: &str) -> Vec<(Range<usize>, u32)> {
        let mut found = Vec::new();
        let mut at = 0;
        if self.tokens.is_empty() {
            return found;
        }
        while let Some(skipped) = text.as_bytes()[at..].iter().position(|&byte| self.begins[usize::from(byte)]) {
            at += skipped;
            match self.longest_at(&text.as_bytes()[at..]) {
                Some(Entry { text, id, .. }) => {
                    found.push((at..at + text.len(), *id));
                    at += text.len();
                }
                None => at += 1,
            }
        }
        found
    }

    fn longest_at(&self, rest: &[u8]) -> Option<&Entry> {
        let rest = &rest[..rest.len().min(LONGEST_TOKEN)];
        let mut candidate = self.tokens.partition_point(|token| token.text.as_bytes() <= rest).checked_sub(1);
        while let Some(at) = candidate {
            let token = &self.tokens[at];
            if rest.starts_with(token.text.as_bytes()) {
                return Some(token);
            }
            candidate = token.shorter;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use aho_corasick::{AhoCorasick, MatchKind};
    use proptest::prelude::*;

    use super::*;

    fn found(tokens: &[&str], text: &str) -> Vec<(usize, usize, u32)> {
        let tokens = tokens.iter().map(|token| (*token).to_owned()).zip(0..);
        let finder = TokenFinder::new(tokens).unwrap();
        finder.find_all(text).into_iter().map(|(Range { start, end }, id)| (start, end, id)).collect()
    }

    #[test]
    fn the_leftmost_and_longest_token_is_found() {
        assert_eq!(found(&["a", "ab", "abcd", "b"], "abcabcda"), [(0, 2, 1), (3, 7, 2), (7, 8, 0)]);
        assert_eq!(found(&["<|x|>", "<|", "|>"], "<|x|><|x<|x|"), [(0, 5, 0), (5, 7, 1), (8, 10, 1)]);
        assert_eq!(found(&["é", "👩", "👩\u{200D}👩"], "e\u{301}é👩👩\u{200D}👩"), [(3, 5, 0), (5, 9, 1), (9, 20, 2)]);
        // Of two with one text the first.
        assert_eq!(found(&["", "x", "x"], "x"), [(0, 1, 1)]);
        assert_eq!(found(&[], "x"), []);
        assert_eq!(found(&["x"], ""), []);
    }

    #[test]
    fn a_token_that_would_make_searches_slow_is_refused() {
        assert!(TokenFinder::new([("a".repeat(LONGEST_TOKEN), 0)]).is_ok());
        assert!(TokenFinder::new([("a".repeat(LONGEST_TOKEN + 1), 0)]).is_err());
    }

    #[test]
    fn a_long_run_of_a_token_is_found_in_time() {
        let tokens = (1..=64).map(|n| ("a".repeat(n), n as u32));
        let found = TokenFinder::new(tokens).unwrap().find_all(&"a".repeat(1 << 20));
        assert_eq!(found.len(), (1 << 20) / 64);
    }

    proptest! {
        #[test]
        fn finds_what_aho_corasick_finds(
            tokens in prop::collection::vec("[ab<é]{0,4}", 0..12),
            text in "[ab<é ]{0,40}",
        ) {
            let named: Vec<&str> = tokens.iter().map(String::as_str).filter(|token| !token.is_empty()).collect();
            let reference = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&named).unwrap();
            let wanted: Vec<(usize, usize, u32)> = reference
                .find_iter(&text)
                .map(|found| (found.start(), found.end(), found.pattern().as_u32()))
                .collect();
            prop_assert_eq!(found(&named, &text), wanted);
        }
    }
}
