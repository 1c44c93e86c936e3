//! What changes logits before a token is chosen, as kernels read it: biases and bans of a request, penalties for what the text
//! holds already, DRY.
//!
//! The text so far lies in a tensor `history`, a token at each position, as keys and values lie in the KV cache: what stands behind
//! the position of the state counts for nothing, so that a text can be cut back without touching it. From it each step finds its
//! counts anew, which costs as much as the window is long, and nothing is to be kept in step when the text changes.
//!
//! 1. `adjust_marks`: puts the step's token into the history; marks for each token of the vocabulary how often the text holds it, and
//!    whether it must not come now.
//! 2. `dry_marks`: for each token how long a repetition it would go on with. Only where DRY is on.
//! 3. `adjust_logits`: the logits with all that, in a tensor of their own; clears the marks.

use crate::error::Result;

/// What penalties depend on, besides the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdjustSettings {
    /// Position of the answer's first token.
    pub answer_start: u32,
    /// So many tokens at the end of the text are looked at by the three below; u32::MAX: all.
    pub window: u32,
    /// Of what the window holds, logits above 0 are divided by it and others multiplied with it (Keskar et al. 2019, CTRL).
    pub repetition: f32,
    /// Subtracted once for each time that a token stands in the part of the answer in the window.
    pub frequency: f32,
    /// Subtracted if it stands there at all.
    pub presence: f32,
    /// As long as the answer is shorter, the tokens that would end it can't come.
    pub min_tokens: u32,
    /// A token that goes on with a repetition of n tokens loses multiplier · base^(n - allowed_length), if n ≥ allowed_length. 0 is off.
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: u32,
    /// As `window`.
    pub dry_window: u32,
}

impl AdjustSettings {
    /// Words of a row of the tensor of settings.
    pub const WORDS: usize = 12;

    /// The longest repetition that DRY may allow.
    pub const MAX_ALLOWED_LENGTH: u32 = 1024;

    /// Changes nothing.
    pub const NEUTRAL: Self = Self {
        answer_start: 0,
        window: 0,
        repetition: 1.0,
        frequency: 0.0,
        presence: 0.0,
        min_tokens: 0,
        dry_multiplier: 0.0,
        dry_base: 1.0,
        dry_allowed_length: 1,
        dry_window: 0,
    };

    pub fn words(&self) -> [u32; Self::WORDS] {
        let floats = [self.repetition, self.frequency, self.presence, self.dry_multiplier, self.dry_base];
        let [repetition, frequency, presence, multiplier, base] = floats.map(f32::to_bits);
        // Nothing is counted that nobody asks for.
        let counts = self.repetition != 1.0 || self.frequency != 0.0 || self.presence != 0.0;
        let window = if counts { self.window } else { 0 };
        let (allowed, longest) = (self.dry_allowed_length, self.dry_longest());
        let min_tokens = self.min_tokens;
        let (start, dry_window) = (self.answer_start, self.dry_window);
        [start, window, repetition, frequency, presence, min_tokens, multiplier, base, allowed, dry_window, longest, 0]
    }

    /// Repetitions are followed back for so many tokens: until a token has lost a million, or a thousand tokens further than
    /// allowed. Longer ones count as this long.
    fn dry_longest(&self) -> u32 {
        if self.dry_multiplier <= 0.0 {
            return 0;
        }
        let growth = f64::from(self.dry_base).ln();
        let steps = if growth > 0.0 { (1e6 / f64::from(self.dry_multiplier)).ln() / growth } else { 0.0 };
        // A cast of what is negative gives 0.
        self.dry_allowed_length + (steps as u32).min(1000)
    }
}

/// Lists of one sequence: the tokens that would end it, and the sequences of tokens that must not come.
pub struct AdjustLists;

impl AdjustLists {
    /// Words of a row: how many of the first and how many of the second; the first; where the sequences begin in the row, and the
    /// end; the sequences.
    pub const WORDS: usize = 4096;

    /// As kernels read them, if they fit. Sequences have at least one token.
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

/// What ends repetitions for DRY, of one sequence: tokens that do, and tokens that do with what may follow them.
pub struct DryBreakerWords;

impl DryBreakerWords {
    /// Words of a row: one for each token of the vocabulary, and a table.
    pub const fn words_of(vocab_size: usize) -> usize {
        vocab_size + Self::TABLE
    }

    /// Words of the table: the longest rest; where the list of each beginning stands in it, and the end; the lists, of where rests stand;
    /// the rests, each behind its length.
    pub const TABLE: usize = 4096;
    /// Of a token's word: it ends a repetition. The rest is a number of a list from 1, or 0: of the rests that do so behind the token.
    pub const BREAKS: u32 = 1 << 31;

    /// As kernels read them, if they fit. `heads` are tokens with the number of their list from 0, and lists hold numbers of rests.
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
        // Where each rest stands.
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

/// Of the word that says what the text holds of a token: it stands in the window, it must not come, and how often it stands in the
/// answer. `adjust_marks.wgsl` and `adjust_logits.wgsl` have the same.
pub(super) const IN_WINDOW: u32 = 1 << 31;
pub(super) const BANNED: u32 = 1 << 30;

/// The words of the settings again.
pub(super) struct Words<'a>(pub &'a [u32]);

impl Words<'_> {
    pub fn answer_start(&self) -> u32 {
        self.0[0]
    }

    pub fn window(&self) -> u32 {
        self.0[1]
    }

    pub fn repetition(&self) -> f32 {
        f32::from_bits(self.0[2])
    }

    pub fn frequency(&self) -> f32 {
        f32::from_bits(self.0[3])
    }

    pub fn presence(&self) -> f32 {
        f32::from_bits(self.0[4])
    }

    pub fn min_tokens(&self) -> u32 {
        self.0[5]
    }

    pub fn dry_multiplier(&self) -> f32 {
        f32::from_bits(self.0[6])
    }

    pub fn dry_base(&self) -> f32 {
        f32::from_bits(self.0[7])
    }

    pub fn dry_allowed_length(&self) -> u32 {
        self.0[8]
    }

    pub fn dry_window(&self) -> u32 {
        self.0[9]
    }

    pub fn dry_longest(&self) -> u32 {
        self.0[10]
    }
}

/// Tokens of the text, with those that a step takes in; 0 where they are more than the history has room for, which only steps past
/// the end are.
pub(super) fn length_of(state: &[u32], advance: usize, capacity: usize) -> usize {
    let length = state[0] as usize + advance;
    if length > capacity { 0 } else { length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_followed_until_they_cost_a_million() {
        let dry = |dry_multiplier, dry_base| {
            AdjustSettings { dry_multiplier, dry_base, dry_allowed_length: 2, ..AdjustSettings::NEUTRAL }.words()[10]
        };
        assert_eq!(dry(0.0, 1.75), 0);
        // 1.75^25 = 1.19e6, 1.75^24 = 6.8e5
        assert_eq!(dry(1.0, 1.75), 2 + 24);
        assert_eq!(dry(0.8, 1.0), 2, "the penalty does not grow");
        assert_eq!(dry(0.8, 1.000_1), 1002);
        assert_eq!(dry(1e7, 2.0), 2);
    }

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
