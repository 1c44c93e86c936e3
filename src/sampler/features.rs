//! Which kernels the choices of a request need, and the plans that were recorded for that.

use super::params::SamplingParams;
use super::path::SamplerPath;
use super::rules::TokenRules;
use super::stages::Stages;
use crate::tensor::Plan;

/// Which kernels choices need. Plans are recorded and kept by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Logits are adjusted before, and by DRY.
    pub(super) adjusts: bool,
    pub(super) dry: bool,
    /// Of what is left, only some tokens are allowed.
    pub(super) masked: bool,
    pub(super) stages: Stages,
    /// Some sequence chooses from the whole vocabulary, from what thresholds keep, from a band; and what cuts the band.
    pub(super) whole: bool,
    pub(super) truncated: bool,
    pub(super) banded: bool,
    pub(super) typical: bool,
    pub(super) xtc: bool,
    pub(super) mirostat: bool,
}

impl Features {
    /// What every session is prepared for.
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

    /// Those of a request.
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

    /// Those of sequences that choose in one step.
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

    /// The same among the tokens that a mask leaves.
    pub fn masked(self) -> Self {
        Self { masked: true, ..self }
    }

    pub fn is_masked(&self) -> bool {
        self.masked
    }

    pub fn adjusts(&self) -> bool {
        self.adjusts
    }

    /// Only from the whole vocabulary, by a number of each token's own.
    pub fn is_whole(&self) -> bool {
        self.whole && !self.truncated && !self.banded && self.stages == Stages::NONE
    }

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

/// Plans by features; of many, those recorded last.
#[derive(Default)]
pub struct Plans(Vec<(Features, Plan)>);

/// More than one user's requests differ in, and few enough to keep.
const MOST_PLANS: usize = 8;

impl Plans {
    pub fn get(&self, features: Features) -> Option<&Plan> {
        self.0.iter().find(|(of, _)| *of == features).map(|(_, plan)| plan)
    }

    pub fn keep(&mut self, features: Features, plan: Plan) {
        if self.0.len() == MOST_PLANS {
            // The first is what sessions are prepared for.
            self.0.remove(1);
        }
        self.0.push((features, plan));
    }
}
