//! The learning rate over the steps of a training.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// How the learning rate goes on after it has risen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays.
    Constant,
    /// It falls evenly and would be 0 after the last step.
    #[default]
    Linear,
    /// It falls along half a cosine.
    Cosine,
}

impl Schedule {
    /// The factor of the learning rate in step `step`, from 0, of `steps`, of which the first `warmup` rise evenly. As the schedulers of
    /// transformers (`get_linear_schedule_with_warmup` and its like).
    pub fn factor(self, step: usize, steps: usize, warmup: usize) -> f64 {
        if step < warmup {
            return step as f64 / warmup.max(1) as f64;
        }
        let done = (step - warmup) as f64 / steps.saturating_sub(warmup).max(1) as f64;
        match self {
            Self::Constant => 1.0,
            Self::Linear => (1.0 - done).max(0.0),
            Self::Cosine => (0.5 * (1.0 + (PI * done).cos())).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_stay_and_fall_as_those_of_transformers() {
        let rates = |schedule: Schedule| -> Vec<f64> { (0..6).map(|step| schedule.factor(step, 6, 2)).collect() };
        assert_eq!(rates(Schedule::Constant), [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(rates(Schedule::Linear), [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]);
        let wanted = [0.0, 0.5, 1.0, 0.853_553_390_593, 0.5, 0.146_446_609_407];
        assert!(rates(Schedule::Cosine).iter().zip(wanted).all(|(own, wanted)| (own - wanted).abs() < 1e-9));
        assert_eq!(Schedule::Linear.factor(0, 1, 0), 1.0);
        assert_eq!(Schedule::Linear.factor(9, 6, 2), 0.0);
    }
}
