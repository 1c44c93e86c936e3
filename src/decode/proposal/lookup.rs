//! Drafts from the text itself: what followed the last tokens when they occurred before (prompt lookup decoding; Saxena 2023). This helps
//! if answers repeat their prompt or themselves, and costs a little otherwise.

use super::{Pace, Proposal, Proposer};
use crate::decode::sequence::Sequence;
use crate::decode::verification::Draft;
use crate::error::Result;

/// The most tokens that are compared to find the best place to copy from.
pub const MAX_NGRAM: usize = 16;

/// The most plain steps of a submit, after which a draft is looked for again.
const MAX_PLAIN_STEPS: usize = 8;

/// Finds drafts in the text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLookup {
    /// The most tokens of a draft.
    pub max_tokens: usize,
    /// How many tokens must agree before a place to copy from.
    pub min_ngram: usize,
}

/// Plain steps if there is no draft. The next draft needs their last token, so nothing runs ahead of them.
pub fn plain_steps(sequence: &Sequence, pace: &Pace) -> Proposal {
    let most = pace.run_ahead.steps_per_submit().min(MAX_PLAIN_STEPS).min(sequence.steps_left());
    if most == 0 { Proposal::Wait } else { Proposal::Steps { most, masks: None } }
}

/// The most tokens that fit a draft: its pass gives one more token, and takes one more in.
pub fn draft_room(sequence: &Sequence) -> usize {
    sequence.steps_left().min(sequence.room()).saturating_sub(1)
}

impl Proposer for PromptLookup {
    fn propose(&mut self, sequence: &mut Sequence, pace: &Pace) -> Result<Proposal> {
        if sequence.in_flight > 0 {
            return Ok(Proposal::Wait);
        }
        // The first token is chosen from the logits after the prompt.
        if !sequence.logits.is_none() {
            return Ok(plain_steps(sequence, pace));
        }
        let draft = self.draft(sequence.slot.tokens(), sequence.last, draft_room(sequence));
        Ok(if draft.is_empty() { plain_steps(sequence, pace) } else { Proposal::Draft(Draft::Known(draft)) })
    }
}

impl PromptLookup {
    /// What may follow `sequence` and then `last`, at most `room` tokens. It is copied from the place before which most of the last tokens
    /// agree, and from the latest of these. A copy that reaches its own beginning goes on with itself, as in LZ77 (Ziv, Lempel 1977), so
    /// repetitions give drafts of full length.
    pub fn draft(&self, sequence: &[u32], last: u32, room: usize) -> Vec<u32> {
        let wanted = self.max_tokens.min(room);
        let (mut longest, mut source) = (0, 0);
        for (index, _) in sequence.iter().enumerate().rev().filter(|(_, token)| **token == last) {
            let before = sequence[..index].iter().rev().zip(sequence.iter().rev()).take(MAX_NGRAM - 1);
            let length = 1 + before.take_while(|(earlier, now)| earlier == now).count();
            if length > longest {
                (longest, source) = (length, index + 1);
            }
            if length == MAX_NGRAM {
                break;
            }
        }
        let mut draft: Vec<u32> = Vec::with_capacity(wanted);
        while longest >= self.min_ngram && draft.len() < wanted {
            let at = source + draft.len();
            draft.push(match at.checked_sub(sequence.len()) {
                None => sequence[at],
                Some(0) => last,
                Some(after) => draft[after - 1],
            });
        }
        draft
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(text: &[u32], max_tokens: usize, min_ngram: usize, room: usize) -> Vec<u32> {
        let (last, sequence) = text.split_last().unwrap();
        PromptLookup { max_tokens, min_ngram }.draft(sequence, *last, room)
    }

    #[test]
    fn a_draft_is_what_followed_before() {
        let text = [1, 2, 3, 4, 5, 9, 1, 2];
        assert_eq!(draft(&text, 3, 2, 10), [3, 4, 5]);
        assert_eq!(draft(&text, 3, 2, 2), [3, 4]);
        assert_eq!(draft(&text, 3, 2, 0), [0; 0]);
        assert_eq!(draft(&text, 3, 3, 10), [0; 0], "only two tokens agree");
        assert_eq!(draft(&[1, 2, 3], 3, 1, 10), [0; 0]);
        assert_eq!(draft(&[1], 3, 1, 10), [0; 0]);
    }

    #[test]
    fn the_longest_match_wins_and_then_the_latest() {
        assert_eq!(draft(&[7, 1, 2, 30, 8, 1, 2, 31, 7, 1, 2], 1, 2, 10), [30]);
        assert_eq!(draft(&[8, 1, 2, 30, 8, 1, 2, 31, 7, 1, 2], 1, 2, 10), [31]);
    }

    #[test]
    fn what_repeats_is_drafted_at_full_length() {
        assert_eq!(draft(&[4, 4, 4], 7, 2, 10), [4; 7]);
        assert_eq!(draft(&[1, 2, 3, 1, 2, 3, 1], 7, 2, 10), [2, 3, 1, 2, 3, 1, 2]);
    }
}
