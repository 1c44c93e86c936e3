//! What the members want of the next submit, and how many steps that makes.

use web_time::Duration;

use super::batch::StepShape;
use super::proposal::Proposal;
use super::scheduler::{Member, ProposalState, Scheduler};
use crate::model::adapters::ActiveAdapters;
use crate::sampler::Features;

/// How much work a submit may have while sequences wait for its results: about as long as a read-back.
const WORK_AMONG_WAITING: Duration = Duration::from_millis(2);

/// What the members want of the next submit. Members are given by index.
#[derive(Default)]
pub struct Wishes {
    /// A first choice from logits that are there; steps follow.
    pub first: Vec<usize>,
    /// Steps that follow one another on the GPU.
    pub runners: Vec<usize>,
    pub singles: Vec<usize>,
    /// A forward pass; the host or a choice waits for its logits.
    pub taking_in: Vec<usize>,
    pub drafts: Vec<usize>,
}

impl Wishes {
    pub fn is_empty(&self) -> bool {
        [&self.first, &self.runners, &self.singles, &self.taking_in, &self.drafts].iter().all(|of| of.is_empty())
    }
}

impl Scheduler {
    pub(super) fn wishes(&self) -> Wishes {
        let mut wishes = Wishes::default();
        for (index, member) in self.members.iter().enumerate() {
            let sequence = &member.sequence;
            let ProposalState::Ready(proposal) = &member.proposal else { continue };
            if sequence.is_over() {
                continue;
            }
            match proposal {
                Proposal::Steps { .. } if !sequence.logits.is_none() => wishes.first.push(index),
                Proposal::Steps { .. } if sequence.room() > 0 => wishes.runners.push(index),
                Proposal::Single { .. } => wishes.singles.push(index),
                Proposal::TakeIn | Proposal::ReadLogits => wishes.taking_in.push(index),
                Proposal::Draft(_) => wishes.drafts.push(index),
                _ => {}
            }
        }
        // Nobody wants a step of those who would take part in one.
        if self.most_steps(&wishes) == 0 {
            wishes.runners.clear();
        }
        wishes
    }

    /// How many steps the runner wants that wants most.
    fn most_steps(&self, wishes: &Wishes) -> usize {
        let most = wishes.runners.iter().map(|index| match &self.members[*index].proposal {
            ProposalState::Ready(Proposal::Steps { most, .. }) => *most,
            _ => 0,
        });
        most.max().unwrap_or(0)
    }

    /// Members that go through the model once in this submit, besides the runners.
    pub(super) fn forwards(&self, wishes: &Wishes) -> Vec<usize> {
        let wants_logits = |index: &&usize| self.members[**index].sequence.logits.is_none();
        let follows = |index: &&usize| {
            let Member { proposal, sequence, .. } = &self.members[**index];
            matches!(proposal, ProposalState::Ready(Proposal::Single { takes_in: true, .. }))
                && sequence.goes_on_after_single()
        };
        let singles = wishes.singles.iter().filter(follows);
        singles.chain(wishes.taking_in.iter().filter(wants_logits)).copied().collect()
    }

    /// How many steps the runners take.
    pub(super) fn steps(&self, wishes: &Wishes) -> usize {
        let most = self.most_steps(wishes);
        let room = wishes.runners.iter().map(|index| self.members[*index].sequence.room()).min().unwrap_or(0);
        let somebody_waits = !(wishes.singles.is_empty() && wishes.taking_in.is_empty() && wishes.drafts.is_empty());
        let steps = self.run_ahead.steps_per_submit();
        let steps = if somebody_waits { steps.min(self.run_ahead.steps_of(WORK_AMONG_WAITING)) } else { steps };
        steps.min(most).min(room)
    }

    /// The adapters that any of these members run with.
    pub(super) fn adapters(&self, members: &[&[usize]]) -> Option<ActiveAdapters> {
        let of = |index: &usize| self.members[*index].sequence.slot.layer_states().adapters();
        members.iter().copied().flatten().filter_map(of).cloned().reduce(|all, more| all.with(&more))
    }

    pub(super) fn shape(&self, runners: &[usize], rows: usize, adapters: u32) -> StepShape {
        let params = || runners.iter().map(|index| &self.members[*index].sequence.params);
        let features = params().map(|params| params.features()).reduce(Features::and).unwrap_or(Features::PLAIN);
        let logprobs = params().any(|params| params.logprobs.is_some());
        StepShape { rows, sampled: runners.len(), features, logprobs, adapters }
    }
}
