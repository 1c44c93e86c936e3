//! How far decoding runs ahead of what has been read.
//!
//! Waiting for the GPU costs a page 1 to 3 ms, which is longer than a step on a fast GPU. So several steps are submitted at once and read
//! by one map. While the page waits for these, as many more run. The time of a step decides how many.
//!
//! Where steps are computed in the call that submits them (`Device::runs_at_once`), nothing would run meanwhile: a step ahead only keeps the page
//! from the last one's token, and past the end it is wasted. There it is one step at a time.

use web_time::{Duration, Instant};

/// Submits in flight at once: while the result of one is on its way to the page, the GPU works on the other.
const SUBMITS_IN_FLIGHT: usize = 2;

/// The most steps of a submit. Steps past the end of the text are wasted, so there is a limit.
pub const MAX_STEPS: usize = 32;

/// The least work of a submit. It takes longer than the wait for its result.
const LEAST_WORK: Duration = Duration::from_millis(5);

/// If a step takes this long, each is shown by itself; below that, two share a map.
const SLOW_STEP: Duration = Duration::from_millis(100);

/// Measures steps and says how many to submit at once.
#[derive(Clone, Debug, Default)]
pub struct RunAhead {
    /// Steps are computed in the call that submits them.
    is_at_once: bool,
    last_arrival: Option<Instant>,
    /// The recent time of a step, smoothed.
    step: Option<Duration>,
}

impl RunAhead {
    /// Expects a step to take as long as an earlier one, if that is known. `is_at_once`: steps are computed in the call that submits them.
    pub fn new(is_at_once: bool, step: Option<Duration>) -> Self {
        Self { is_at_once, last_arrival: None, step }
    }

    /// The most submits in flight at once.
    pub fn submits_in_flight(&self) -> usize {
        if self.is_at_once { 1 } else { SUBMITS_IN_FLIGHT }
    }

    /// How long a step takes, if that is known.
    pub fn step(&self) -> Option<Duration> {
        self.step
    }

    /// The results of `steps` steps, submitted at once, have arrived.
    pub fn arrived(&mut self, steps: usize, now: Instant) {
        if let Some(last) = self.last_arrival.replace(now)
            && steps > 0
        {
            let step = now.duration_since(last) / steps as u32;
            // The page may have been busy with other things, so short times count more than long ones.
            self.step = Some(match self.step {
                None => step,
                Some(before) if step < before => (before + step) / 2,
                Some(before) => (before * 7 + step) / 8,
            });
        }
    }

    /// What comes next does not follow from what has arrived, so the time between says nothing.
    pub fn pause(&mut self) {
        self.last_arrival = None;
    }

    /// How many steps to submit at once.
    pub fn steps_per_submit(&self) -> usize {
        self.steps_of(LEAST_WORK)
    }

    /// How many steps make this much work: at least two, unless steps are slow.
    pub fn steps_of(&self, work: Duration) -> usize {
        match self.step {
            _ if self.is_at_once => 1,
            None => 2,
            Some(step) if step > SLOW_STEP => 1,
            Some(step) => {
                let wanted = work.as_nanos().div_ceil(step.as_nanos().max(1));
                (wanted as usize).clamp(2, MAX_STEPS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: &[(usize, u64)]) -> usize {
        let mut run_ahead = RunAhead::default();
        let mut now = Instant::now();
        for (count, microseconds) in steps {
            now += Duration::from_micros(*microseconds);
            run_ahead.arrived(*count, now);
        }
        run_ahead.steps_per_submit()
    }

    #[test]
    fn fast_steps_share_a_submit_and_slow_ones_do_not() {
        assert_eq!(after(&[]), 2);
        assert_eq!(after(&[(1, 900)]), 2, "one arrival says nothing yet");
        assert_eq!(after(&[(1, 900), (2, 2000)]), 5);
        assert_eq!(after(&[(1, 0), (2, 20)]), MAX_STEPS);
        assert_eq!(after(&[(1, 0), (2, 0)]), MAX_STEPS);
        assert_eq!(after(&[(1, 0), (1, 20_000)]), 2);
        assert_eq!(after(&[(1, 0), (1, 150_000)]), 1);
    }

    #[test]
    fn nothing_runs_ahead_of_the_caller() {
        for step in [None, Some(1), Some(1_000_000)] {
            let run_ahead = RunAhead::new(true, step.map(Duration::from_micros));
            assert_eq!((run_ahead.steps_per_submit(), run_ahead.submits_in_flight()), (1, 1));
            let beside = RunAhead::new(false, step.map(Duration::from_micros));
            assert_eq!(beside.submits_in_flight(), 2);
        }
    }

    #[test]
    fn one_hiccup_changes_little() {
        let steady = [(8, 8000); 20];
        let mut steps = steady.to_vec();
        steps.push((8, 40_000));
        assert_eq!(after(&steady), 5);
        assert!(after(&steps) >= 3);
    }
}
