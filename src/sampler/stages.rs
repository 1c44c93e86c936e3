//! Stages between the adjusted, masked logits and the choice: each replaces the logits, by a row's settings. A new one is an op and a
//! line here.

use super::ops::{Dynatemp, TopNSigma};
use super::params::SamplingParams;
use crate::tensor::Op;

/// A stage. Its op takes logits [rows, vocabulary] and settings [rows, WORDS] u32, and does not change the logits of rows without it.
struct Stage {
    is_on: fn(&SamplingParams) -> bool,
    op: &'static dyn Op,
}

/// All stages, in the order in which they run.
const STAGES: &[Stage] = &[
    Stage { is_on: |settings| settings.top_n_sigma > 0.0, op: &TopNSigma },
    Stage { is_on: |settings| settings.dynatemp_range > 0.0, op: &Dynatemp },
];

/// Which stages run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u32);

impl Stages {
    pub const NONE: Self = Self(0);

    /// The stages that settings need. None changes a greedy choice.
    pub fn of(settings: &SamplingParams) -> Self {
        let on = |stage: &Stage| !settings.is_greedy() && (stage.is_on)(settings);
        Self(STAGES.iter().enumerate().map(|(number, stage)| u32::from(on(stage)) << number).sum())
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn ops(self) -> impl Iterator<Item = &'static dyn Op> {
        STAGES.iter().enumerate().filter(move |(number, _)| self.0 >> number & 1 == 1).map(|(_, stage)| stage.op)
    }
}
