//! A request's rules about single tokens, as plain data: which are more or less likely, which are banned, and what ends a
//! repetition.

use std::collections::BTreeSet;

use crate::error::Result;

/// Rules of one generation. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenRules {
    /// Added to the logits of tokens, from -100 to 100. OpenAI's `logit_bias`.
    pub biases: Vec<(u32, f32)>,
    /// Tokens that are never chosen.
    pub suppressed: Vec<u32>,
    /// Banned sequences of tokens: the last token of one is banned while the text (prompt or answer) ends with the others, like bad words
    /// in Hugging Face transformers. The same text in other tokens is another sequence.
    pub bad_words: Vec<Vec<u32>>,
    /// While the answer has fewer tokens, none of `ends` is chosen.
    pub min_tokens: u32,
    pub ends: Vec<u32>,
    /// DRY's sequence breakers, which end repetitions.
    pub dry_breakers: DryBreakers,
    /// Tokens of the text before the answer.
    pub answer_start: usize,
}

/// Breakers of one generation. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryBreakers {
    /// Tokens whose text contains a breaker.
    pub tokens: Vec<u32>,
    /// Tokens that end with the beginning of a breaker, with the number of the list of its rests; each token once.
    pub heads: Vec<(u32, usize)>,
    /// Lists of numbers of rests.
    pub lists: Vec<Vec<usize>>,
    /// The tokens of the rest of a breaker, up to its end.
    pub rests: Vec<Vec<u32>>,
}

/// The largest absolute bias, as in OpenAI's API.
pub const MAX_BIAS: f32 = 100.0;

impl TokenRules {
    /// These rules, and words that are banned besides.
    pub fn banning(mut self, words: impl Iterator<Item = Vec<u32>>) -> Self {
        self.bad_words.extend(words);
        self
    }

    /// Whether they can change or ban a token.
    pub fn adjust(&self) -> bool {
        let Self { biases, suppressed, bad_words, min_tokens, .. } = self;
        !biases.is_empty() || !suppressed.is_empty() || !bad_words.is_empty() || *min_tokens > 0
    }

    /// Tokens that are banned independently of the text.
    pub fn banned(&self) -> impl Iterator<Item = u32> {
        let alone = self.bad_words.iter().filter(|word| word.len() == 1).flatten();
        self.suppressed.iter().chain(alone).copied()
    }

    /// Refuses ids beyond a vocabulary of this size, and rules that leave no token. Errors name the fields of a request.
    pub fn validate(&self, vocab_size: usize) -> Result<()> {
        let known = |id: &u32| (*id as usize) < vocab_size;
        for (id, bias) in &self.biases {
            if !known(id) {
                bail!(
                    InvalidRequest,
                    "logit_bias has token id {id}, wanted ids below {vocab_size}, the vocabulary's size"
                );
            }
            // Not with `<` and `>`, because NaN must be refused as well.
            if !(-MAX_BIAS..=MAX_BIAS).contains(bias) {
                bail!(
                    InvalidRequest,
                    "logit_bias of token {id} is {bias}, wanted a number from -{MAX_BIAS} to {MAX_BIAS}"
                );
            }
        }
        if let Some(id) = self.suppressed.iter().find(|id| !known(id)) {
            bail!(
                InvalidRequest,
                "suppress_tokens has token id {id}, wanted ids below {vocab_size}, the vocabulary's size"
            );
        }
        if self.bad_words.iter().any(Vec::is_empty) {
            bail!(InvalidRequest, "bad_words has one without a token, wanted texts of at least one");
        }
        if let Some(id) = self.bad_words.iter().flatten().find(|id| !known(id)) {
            bail!(InvalidRequest, "bad_words has token id {id}, which the model's {vocab_size} logits do not reach");
        }
        let mut banned: BTreeSet<u32> = self.banned().collect();
        if banned.len() >= vocab_size {
            bail!(
                InvalidRequest,
                "suppress_tokens and bad_words ban all {vocab_size} tokens, wanted one left at least"
            );
        }
        if self.min_tokens > 0 {
            banned.extend(&self.ends);
        }
        if banned.len() >= vocab_size {
            bail!(
                InvalidRequest,
                "suppress_tokens and bad_words leave only tokens that end the answer, and min_tokens is {}",
                self.min_tokens
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_vocabulary_has_not_is_refused_by_name() {
        let refused = |rules: TokenRules, name: &str| {
            let error = rules.validate(5).unwrap_err();
            assert!(error.message().starts_with(name), "{error}");
        };
        let none = TokenRules::default;
        refused(TokenRules { biases: vec![(5, 1.0)], ..none() }, "logit_bias");
        for bias in [f32::NAN, 100.5, -101.0, f32::INFINITY] {
            refused(TokenRules { biases: vec![(0, bias)], ..none() }, "logit_bias of token 0");
        }
        refused(TokenRules { suppressed: vec![7], ..none() }, "suppress_tokens has token id 7");
        refused(TokenRules { bad_words: vec![vec![]], ..none() }, "bad_words");
        refused(TokenRules { bad_words: vec![vec![1, 9]], ..none() }, "bad_words has token id 9");
        let most = TokenRules { suppressed: vec![0, 1, 2], bad_words: vec![vec![3], vec![4, 0]], ..none() };
        assert!(most.validate(5).is_ok());
        refused(
            TokenRules { bad_words: vec![vec![3], vec![4]], ..most.clone() },
            "suppress_tokens and bad_words ban all 5",
        );
        refused(TokenRules { min_tokens: 2, ends: vec![4], ..most }, "suppress_tokens and bad_words leave only");
    }

    #[test]
    fn rules_adjust_when_they_say_something() {
        let none = TokenRules::default;
        let dry_breakers = DryBreakers { tokens: vec![2], ..DryBreakers::default() };
        assert!(!TokenRules { ends: vec![1], dry_breakers, answer_start: 3, ..none() }.adjust());
        assert!(TokenRules { min_tokens: 1, ..none() }.adjust());
        assert!(TokenRules { biases: vec![(1, 0.5)], ..none() }.adjust());
        assert_eq!(
            TokenRules { suppressed: vec![3], bad_words: vec![vec![1, 2], vec![4]], ..none() }
                .banned()
                .collect::<Vec<_>>(),
            [3, 4]
        );
    }
}
