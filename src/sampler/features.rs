//! Which kernels the choices of a request need, and the plans recorded for them.

use super::params::SamplingParams;
use super::path::SamplerPath;
use super::rules::TokenRules;
use super::stages::Stages;
use crate::tensor::Plan;

/// Which kernels choices need: the key of recorded plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Logits are adjusted first.
    pub(super) adjusts: bool,
    /// Also by DRY.
    pub(super) dry: bool,
    /// A mask allows only some tokens.
    pub(super) masked: bool,
    pub(super) stages: Stages,
    /// Some sequence chooses from the whole vocabulary.
    pub(super) whole: bool,
    /// Some sequence chooses from the tokens that thresholds keep.
    pub(super) truncated: bool,
    /// Some sequence chooses from a band. The other fields say what cuts it.
    pub(super) banded: bool,
    pub(super) typical: bool,
    pub(super) xtc: bool,
    pub(super) mirostat: bool,
}

impl Features {
    /// The features that every session is prepared for.
    pub const PLAIN: Self = Self {
        adjusts: false,
        dry: false,
        masked: false,
        stages: Stages::NONE,
        whole: true,
        truncated: false,
        banded: false,
        typical: false,
        xtc: false,
        mirostat: false,
    };

    /// The features of a request.
    pub fn of(settings: &SamplingParams, rules: &TokenRules) -> Self {
        let (dry, banded) = (settings.dry.is_on(), settings.is_banded());
        let truncated = settings.is_truncated() && !banded;
        Self {
            adjusts: dry || settings.penalties.are_on() || rules.adjust(),
            dry,
            masked: false,
            stages: Stages::of(settings),
            whole: !banded && !truncated,
            truncated,
            banded,
            typical: banded && settings.typical_p < 1.0,
            xtc: banded && settings.xtc_probability > 0.0,
            mirostat: banded && settings.mirostat.is_some(),
        }
    }

    /// The features of sequences that choose in one step.
    pub fn and(self, other: Self) -> Self {
        Self {
            adjusts: self.adjusts || other.adjusts,
            dry: self.dry || other.dry,
            masked: self.masked || other.masked,
            stages: self.stages.and(other.stages),
            whole: self.whole || other.whole,
            truncated: self.truncated || other.truncated,
            banded: self.banded || other.banded,
            typical: self.typical || other.typical,
            xtc: self.xtc || other.xtc,
            mirostat: self.mirostat || other.mirostat,
        }
    }

    /// The same with a mask.
    pub fn masked(self) -> Self {
        Self { masked: true, ..self }
    }

    /// Whether a mask allows only some tokens.
    pub fn is_masked(&self) -> bool {
        self.masked
    }

    /// Whether logits are adjusted first.
    pub fn adjusts(&self) -> bool {
        self.adjusts
    }

    /// Whether every choice is from the whole vocabulary, by a number that depends on the token alone.
    pub fn is_whole(&self) -> bool {
        self.whole && !self.truncated && !self.banded && self.stages == Stages::NONE
    }

    /// Whether some sequence uses mirostat.
    pub fn mirostat(&self) -> bool {
        self.mirostat
    }

    /// The choice of one sequence.
    pub(super) fn path(&self) -> SamplerPath {
        match (self.truncated, self.banded) {
            (_, true) => SamplerPath::Banded,
            (true, false) => SamplerPath::Truncated,
            (false, false) => SamplerPath::Whole,
        }
    }
}

/// Plans by features; the latest ones.
#[derive(Default)]
pub struct Plans(Vec<(Features, Plan)>);

/// More combinations than the requests of one user need.
const MOST_PLANS: usize = 8;

impl Plans {
    pub fn get(&self, features: Features) -> Option<&Plan> {
        self.0.iter().find(|(of, _)| *of == features).map(|(_, plan)| plan)
    }

    pub fn keep(&mut self, features: Features, plan: Plan) {
        if self.0.len() == MOST_PLANS {
            // The first one is for the features that sessions are prepared for.
            self.0.remove(1);
        }
        self.0.push((features, plan));
    }
}
