//! Drafts from the model's own head (`model/mtp.rs`), as long as they pay: what a token takes with drafts and without is measured, and the
//! faster way goes on. The other one is tried again from time to time.

use std::cell::RefCell;
use std::rc::Rc;

use web_time::{Duration, Instant};

use super::lookup::draft_room;
use super::{Pace, Proposal, Proposer};
use crate::decode::sequence::Sequence;
use crate::decode::verification::Draft;
use crate::error::Result;

/// Tokens after which a way counts as measured.
const TRIAL: usize = 24;
/// Tokens by the faster way before the other one is tried again.
const BETWEEN_TRIALS: usize = 256;

/// What a token took, by either way. All sequences of a model measure it.
pub type Pay = Rc<RefCell<TokenTimes>>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenTimes {
    drafted: Option<Duration>,
    plain: Option<Duration>,
    /// After the present span the slower way is tried.
    trial_follows: bool,
}

/// How the next tokens come, and how many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    drafts: bool,
    tokens: usize,
}

impl TokenTimes {
    /// What follows. Without a measurement it begins with drafts.
    fn next(&mut self) -> Span {
        let (Some(drafted), Some(plain)) = (self.drafted, self.plain) else {
            return Span { drafts: self.drafted.is_none(), tokens: TRIAL };
        };
        let drafts_pay = drafted < plain;
        self.trial_follows = !self.trial_follows;
        if self.trial_follows {
            Span { drafts: drafts_pay, tokens: BETWEEN_TRIALS }
        } else {
            Span { drafts: !drafts_pay, tokens: TRIAL }
        }
    }

    fn took(&mut self, drafts: bool, tokens: usize, time: Duration) {
        if tokens == 0 {
            return;
        }
        let time = time / tokens as u32;
        let known = if drafts { &mut self.drafted } else { &mut self.plain };
        *known = Some(known.map_or(time, |before| (before + time) / 2));
    }
}

pub struct MtpProposer {
    /// The most tokens of a draft.
    max_tokens: usize,
    times: Pay,
    span: Option<Running>,
    /// A draft is under way. Nothing runs ahead of it.
    is_drafting: bool,
    /// The time since the present span began does not count.
    is_spoilt: bool,
}

struct Running {
    span: Span,
    /// The step at which it began, and when.
    first: usize,
    begun: Instant,
}

impl MtpProposer {
    pub fn new(max_tokens: usize, times: Pay) -> Self {
        Self { max_tokens, times, span: None, is_drafting: false, is_spoilt: false }
    }

    /// The tokens of the present span that are not submitted yet; a new span begins when all of an old one are here.
    fn left(&mut self, sequence: &Sequence) -> (bool, usize) {
        let now = Instant::now();
        let begin = |times: &Pay| Running { span: times.borrow_mut().next(), first: sequence.steps, begun: now };
        let mut running = self.span.take().unwrap_or_else(|| begin(&self.times));
        if std::mem::take(&mut self.is_spoilt) {
            (running.first, running.begun) = (sequence.steps, now);
        }
        if sequence.steps >= running.first + running.span.tokens && sequence.in_flight == 0 {
            let (drafts, tokens) = (running.span.drafts, sequence.steps - running.first);
            self.times.borrow_mut().took(drafts, tokens, now.duration_since(running.begun));
            running = begin(&self.times);
        }
        let end = running.first + running.span.tokens;
        let left = end.saturating_sub(sequence.steps + sequence.in_flight);
        let drafts = running.span.drafts;
        self.span = Some(running);
        (drafts, left)
    }
}

impl Proposer for MtpProposer {
    fn propose(&mut self, sequence: &mut Sequence, _: &Pace) -> Result<Proposal> {
        let has_logits = !sequence.logits.is_none();
        let plain = |most: usize| match most.min(sequence.steps_left()) {
            0 => Ok(Proposal::Wait),
            most => Ok(Proposal::Steps { most, masks: None }),
        };
        // The first token is chosen from the logits after the prompt.
        if has_logits {
            return if sequence.in_flight > 0 { Ok(Proposal::Wait) } else { plain(1) };
        }
        if sequence.in_flight > 0 && self.is_drafting {
            return Ok(Proposal::Wait);
        }
        self.is_drafting = false;
        let (drafts, left) = self.left(sequence);
        let count = self.max_tokens.min(draft_room(sequence));
        if !drafts || count == 0 {
            return plain(left.max(usize::from(sequence.in_flight == 0)));
        }
        if sequence.in_flight > 0 {
            return Ok(Proposal::Wait);
        }
        let draft = Draft::Predicted(count);
        if !sequence.slot.can_verify(&draft) {
            // Kernels are compiled first, which is no part of what a token takes.
            self.is_spoilt = true;
        }
        self.is_drafting = true;
        Ok(Proposal::Draft(draft))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_goes_on_and_the_other_is_tried_again() {
        let ms = Duration::from_millis;
        let mut times = TokenTimes::default();
        assert_eq!(times.next(), Span { drafts: true, tokens: TRIAL });
        times.took(true, 10, ms(50));
        assert_eq!(times.next(), Span { drafts: false, tokens: TRIAL });
        times.took(false, 0, ms(9));
        assert_eq!(times.next(), Span { drafts: false, tokens: TRIAL }, "no token, no measurement");
        times.took(false, 10, ms(80));
        assert_eq!(times.next(), Span { drafts: true, tokens: BETWEEN_TRIALS });
        times.took(true, 10, ms(200));
        assert_eq!(times.next(), Span { drafts: true, tokens: TRIAL }, "5 and 20 ms are 12.5, more than 8");
        times.took(true, 10, ms(200));
        assert_eq!(times.next(), Span { drafts: false, tokens: BETWEEN_TRIALS });
    }
}
