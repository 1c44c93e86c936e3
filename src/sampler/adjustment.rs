//! The data that kernels read to adjust logits before a token is chosen: biases and bans of a request, penalties for tokens that the
//! text already holds, DRY.
//!
//! The tensor `history` holds the text so far, a token at each position, like the KV cache: entries after the position of the state
//! are ignored, so that rolling back does not change it. Each step counts the tokens again, at a cost that grows with the window, so
//! no counts have to be kept in step with the text.
//!
//! 1. `adjust_marks`: puts the step's token into the history; marks for each token of the vocabulary how often the text holds it, and
//!    whether it is banned now.
//! 2. `dry_marks`: for each token, the length of the repetition that it would continue. Only if DRY is on.
//! 3. `adjust_logits`: the adjusted logits, in a tensor of their own; clears the marks.
//!
//! After it, and after the masks of structured output, `top_n_sigma` masks logits far below the largest one.

use super::row::SamplerRow;
use crate::error::Result;
use crate::tensor::Define;

/// Lists of one sequence: the tokens that would end it, and the banned sequences of tokens.
pub struct AdjustLists;

impl AdjustLists {
    /// Words of a row: the lengths of both lists; the first list; where the sequences begin in the row, and the end; the sequences.
    pub const WORDS: usize = 4096;

    /// The form that kernels read, if they fit. Sequences have at least one token.
    pub fn words(ends: &[u32], sequences: &[Vec<u32>]) -> Result<Vec<u32>> {
        let tokens: usize = sequences.iter().map(Vec::len).sum();
        let mut words = vec![ends.len() as u32, sequences.len() as u32];
        if words.len() + ends.len() + sequences.len() + 1 + tokens > Self::WORDS {
            bail!(
                InvalidRequest,
                "{} sequences of {tokens} tokens in all are too many to ban; there is room for {} words",
                sequences.len(),
                Self::WORDS
            );
        }
        words.extend(ends);
        let mut start = words.len() + sequences.len() + 1;
        for sequence in sequences {
            words.push(start as u32);
            start += sequence.len();
        }
        words.push(start as u32);
        words.extend(sequences.iter().flatten());
        words.resize(Self::WORDS, 0);
        Ok(words)
    }
}

/// DRY's breakers of one sequence: tokens that end repetitions, and tokens that do so with certain tokens after them.
pub struct DryBreakerWords;

impl DryBreakerWords {
    /// Words of a row: one for each token of the vocabulary, and a table.
    pub const fn words_of(vocab_size: usize) -> usize {
        vocab_size + Self::TABLE
    }

    /// Words of the table: the longest rest; the places of the lists in it, and the end; the lists, with the places of rests; the rests,
    /// each after its length.
    pub const TABLE: usize = 4096;
    /// The bit of a token's word for a token that ends a repetition. The other bits are 0, or the number, from 1, of the list of rests
    /// that do so after the token.
    pub const BREAKS: u32 = 1 << 31;

    /// The form that kernels read, if they fit. `heads` are tokens with the number of their list from 0, and lists hold numbers of rests.
    pub fn words(
        vocab_size: usize,
        tokens: &[u32],
        heads: &[(u32, usize)],
        lists: &[Vec<usize>],
        rests: &[Vec<u32>],
    ) -> Result<Vec<u32>> {
        let lists_at = 1 + lists.len() + 1;
        let rests_at = lists_at + lists.iter().map(Vec::len).sum::<usize>();
        let end = rests_at + rests.iter().map(|rest| 1 + rest.len()).sum::<usize>();
        if end > Self::TABLE {
            bail!(
                InvalidRequest,
                "they can be written in too many ways: a table of {end} words, and there is room for {}; give fewer or shorter ones",
                Self::TABLE
            );
        }
        let mut words = vec![0u32; vocab_size];
        let mut mark = |id: u32, bits: u32| match words.get_mut(id as usize) {
            Some(word) => {
                *word |= bits;
                Ok(())
            }
            None => Err(err!(Internal, "a breaker has token {id} of {vocab_size}")),
        };
        tokens.iter().try_for_each(|id| mark(*id, Self::BREAKS))?;
        heads.iter().try_for_each(|(id, list)| mark(*id, *list as u32 + 1))?;
        // The place of each rest.
        let starts: Vec<usize> = rests
            .iter()
            .scan(rests_at, |at, rest| {
                let start = *at;
                *at += 1 + rest.len();
                Some(start)
            })
            .collect();
        words.push(rests.iter().map(Vec::len).max().unwrap_or(0) as u32);
        let mut at = lists_at;
        for list in lists {
            words.push(at as u32);
            at += list.len();
        }
        words.push(at as u32);
        for number in lists.iter().flatten() {
            let Some(start) = starts.get(*number) else { bail!(Internal, "a list of breakers has no rest {number}") };
            words.push(*start as u32);
        }
        for rest in rests {
            words.push(rest.len() as u32);
            words.extend(rest);
        }
        words.resize(Self::words_of(vocab_size), 0);
        Ok(words)
    }
}

/// The bits of a token's mark: it is in the window, it is banned, and how often it is in the answer.
pub(super) const IN_WINDOW: u32 = 1 << 31;
pub(super) const BANNED: u32 = 1 << 30;

pub(super) fn modules() -> &'static [(&'static str, &'static str)] {
    &[
        ("sampler_row", SamplerRow::WGSL),
        ("adjustment", crate::shader!("wgsl/adjustment.wgsl")),
        ("truncation", crate::shader!("wgsl/truncation.wgsl")),
        ("workgroup_total", crate::shader!("wgsl/workgroup_total.wgsl")),
    ]
}

pub(super) fn defines() -> Vec<(&'static str, Define)> {
    vec![("IN_WINDOW", Define::U32(IN_WINDOW)), ("BANNED", Define::U32(BANNED))]
}

/// Tokens of the text, with those of this step; 0 if the history has no room for them, as with steps past the end.
pub(super) fn length_of(state: &[u32], advance: usize, capacity: usize) -> usize {
    let length = state[0] as usize + advance;
    if length > capacity { 0 } else { length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakers_are_words_of_tokens_and_a_table() {
        let words = DryBreakerWords::words(4, &[2], &[(1, 0), (2, 1)], &[vec![0, 1], vec![1]], &[vec![3, 0], vec![3]]);
        let words = words.unwrap();
        assert_eq!(words[..4], [0, 1, DryBreakerWords::BREAKS | 2, 0]);
        assert_eq!(words[4..17], [2, 4, 6, 7, 7, 10, 10, 2, 3, 0, 1, 3, 0]);
        assert_eq!(words.len(), DryBreakerWords::words_of(4));
        let long = DryBreakerWords::words(4, &[], &[(0, 0)], &[vec![0]], &[vec![1; 5000]]);
        assert!(long.unwrap_err().message().contains("too many ways"));
        assert!(DryBreakerWords::words(4, &[4], &[], &[], &[]).is_err());
    }

    #[test]
    fn lists_hold_what_they_were_made_of_or_refuse() {
        let words = AdjustLists::words(&[7, 8], &[vec![1, 2], vec![3]]).unwrap();
        assert_eq!(words[..11], [2, 2, 7, 8, 7, 9, 10, 1, 2, 3, 0]);
        assert!(AdjustLists::words(&[], &vec![vec![1; 41]; 100]).is_err());
        assert!(AdjustLists::words(&[], &vec![vec![1; 39]; 100]).is_ok());
    }
}
