//! What work costs on this GPU, learned from how long submits took.
//!
//! A submit gives one time for several kernels. So each of its kernels gets its part of what was expected too much or too little; since
//! submits begin and end at different kernels, the parts come right. A change that concerns all kernels, such as another clock of the GPU, is
//! taken for one (`drift`), so that kernels which did not run meanwhile follow.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::TARGET;

/// Nanoseconds of a workgroup that nobody has measured, on a slow GPU.
const WORKGROUP: f64 = 10_000.0;

/// Nanoseconds of a byte that is copied on the GPU, and of one that is written by the host, before any was measured.
const COPIED_BYTE: f64 = 0.05;
const WRITTEN_BYTE: f64 = 1.0;

/// How many kernels that nobody has measured a submit has at most, unless other kernels of this GPU take much less.
const MOST_UNKNOWN: f64 = 3.0;

/// How many times as long as those that were measured, on average, a kernel is expected to take that was not. What is measured first is what
/// loads a model, whose kernels are short.
const UNKNOWN_TIMES: f64 = 8.0;

/// Submits after which it is known what kernels take on average.
const TELLING: u32 = 4;

/// The most that one measurement changes.
const MOST_CHANGE: f64 = 64.0;

/// A change above this factor is believed at once, a smaller one is smoothed.
const LARGE_CHANGE: f64 = 2.0;

/// After this number of measurements a rate changes slowly, and large changes are those of the GPU.
const SETTLED: u32 = 4;

/// Kinds of work that are kept. A model has tens, a page that computes other things may have any number.
const MOST_KINDS: usize = 4096;

/// What is measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A pipeline, by its address, with inputs of this many bytes: one product runs on matrices of several sizes.
    Kernel {
        pipeline: usize,
        read_bytes: u64,
    },
    Copy,
    Write,
}

/// Work of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub kind: Kind,
    /// Workgroups, or bytes.
    pub units: f64,
    /// How many dispatches, copies or writes.
    pub times: f64,
}

#[derive(Clone, Copy)]
struct Rate {
    /// Nanoseconds of a unit, without the drift.
    each: f64,
    measured: u32,
}

pub struct Costs {
    kinds: HashMap<Kind, Rate, FixedState>,
    /// Of pipelines, whatever their inputs: the last rate.
    pipelines: HashMap<usize, f64, FixedState>,
    /// How much slower everything is than it was measured.
    drift: f64,
    /// How much slower kernels are than `WORKGROUP`.
    speed: Option<f64>,
    /// Nanoseconds of a dispatch, and the number of submits of which that is the average.
    dispatch: (f64, u32),
}

impl Default for Costs {
    fn default() -> Self {
        Self { kinds: HashMap::default(), pipelines: HashMap::default(), drift: 1.0, speed: None, dispatch: (0.0, 0) }
    }
}

impl Costs {
    /// The rate of a kind as far as it was measured.
    fn measured(&self, kind: Kind) -> Option<f64> {
        let of_pipeline = || match kind {
            Kind::Kernel { pipeline, .. } => self.pipelines.get(&pipeline).copied(),
            _ => None,
        };
        self.kinds.get(&kind).map(|rate| rate.each).or_else(of_pipeline).map(|each| each * self.drift)
    }

    /// The expected nanoseconds of some work.
    pub fn expected(&self, work: Work) -> f64 {
        if let Some(each) = self.measured(work.kind) {
            return each * work.units;
        }
        match work.kind {
            Kind::Kernel { .. } => {
                let guess = WORKGROUP * self.speed.unwrap_or(1.0) * work.units;
                guess.max(self.unknown() * work.times)
            }
            Kind::Copy => COPIED_BYTE * work.units,
            Kind::Write => WRITTEN_BYTE * work.units,
        }
    }

    /// The least that a dispatch of a kernel is expected to take that nobody has measured.
    fn unknown(&self) -> f64 {
        let most = TARGET.as_nanos() as f64 / MOST_UNKNOWN;
        let (each, submits) = self.dispatch;
        if submits < TELLING { most } else { (UNKNOWN_TIMES * each).min(most) }
    }

    /// Learns from the nanoseconds that all this work took together.
    pub fn took(&mut self, done: &[Work], nanoseconds: f64) {
        let expected: Vec<f64> = done.iter().map(|work| self.expected(*work)).collect();
        let total: f64 = expected.iter().sum();
        if total <= 0.0 {
            return;
        }
        let change = (nanoseconds / total).clamp(1.0 / MOST_CHANGE, MOST_CHANGE);
        let is_settled = |work: &Work| self.kinds.get(&work.kind).is_some_and(|rate| rate.measured >= SETTLED);
        let settled: f64 = done.iter().zip(&expected).filter(|(work, _)| is_settled(work)).map(|(_, of)| of).sum();
        let is_large = !(1.0 / LARGE_CHANGE..LARGE_CHANGE).contains(&change);
        let believed = if is_large { 0.9 } else { 0.3 };
        let drift = self.drift * change.powf(believed * settled / total);
        // Old rates follow slowly, since all kernels of a submit are blamed alike; new ones are what they took.
        for (work, expected) in done.iter().zip(expected) {
            let rate = match (self.kinds.get(&work.kind), self.measured(work.kind)) {
                (Some(Rate { each, measured }), _) => {
                    let follows = if *measured < SETTLED { 0.7 } else { 0.1 };
                    Rate { each: each * change.powf(follows), measured: measured.saturating_add(1) }
                }
                (None, Some(each)) => Rate { each: each / self.drift * change.powf(0.7), measured: 1 },
                (None, None) if work.units > 0.0 => Rate { each: expected * change / work.units / drift, measured: 1 },
                (None, None) => continue,
            };
            if let Kind::Kernel { pipeline, .. } = work.kind {
                self.pipelines.insert(pipeline, rate.each);
            }
            if self.kinds.len() < MOST_KINDS || self.kinds.contains_key(&work.kind) {
                self.kinds.insert(work.kind, rate);
            }
        }
        self.drift = drift.clamp(1e-4, 1e4);
        let workgroups = |work: &Work| matches!(work.kind, Kind::Kernel { .. }).then_some(work.units);
        let guessed = done.iter().filter_map(workgroups).sum::<f64>() * WORKGROUP;
        if guessed > 0.0 {
            let speed = nanoseconds.max(1.0) / guessed;
            self.speed = Some(self.speed.map_or(speed, |before| (before * speed).sqrt()));
        }
        let kernels =
            done.iter().filter(|work| matches!(work.kind, Kind::Kernel { .. })).map(|work| work.times).sum::<f64>();
        if kernels > 0.0 {
            let (each, submits) = (self.dispatch.0, self.dispatch.1.saturating_add(1));
            // Follows another speed of the GPU within a few submits.
            self.dispatch = (each + (nanoseconds / kernels - each) / f64::from(submits.min(2 * TELLING)), submits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    fn kernel(pipeline: usize, units: f64) -> Work {
        Work { kind: Kind::Kernel { pipeline, read_bytes: 0 }, units, times: 1.0 }
    }

    #[test]
    fn what_nobody_has_measured_is_expected_to_be_slow() {
        let mut costs = Costs::default();
        assert_eq!(costs.expected(kernel(1, 1.0)), 2.0 * MS, "three of them are a submit");
        assert_eq!(costs.expected(kernel(1, 1000.0)), 10.0 * MS);
        costs.took(&[kernel(1, 1000.0)], 0.2 * MS);
        assert!((costs.expected(kernel(1, 500.0)) - 0.1 * MS).abs() < 1e3);
        assert_eq!(costs.expected(kernel(2, 1.0)), 2.0 * MS, "another one is as unknown as before");
        assert_eq!(costs.expected(kernel(2, 1000.0)), 2.0 * MS, "but the GPU is fast");
        let larger = Work { kind: Kind::Kernel { pipeline: 1, read_bytes: 1 << 20 }, units: 500.0, times: 1.0 };
        assert!((costs.expected(larger) - 0.1 * MS).abs() < 1e3, "the same kernel on another input");
    }

    #[test]
    fn what_nobody_has_measured_is_expected_to_be_slow_as_others_are() {
        let unknown = |nanoseconds: f64| {
            let mut costs = Costs::default();
            for pipeline in 1..=TELLING as usize {
                assert_eq!(costs.expected(kernel(9, 1.0)), 2.0 * MS, "after {} kernels", pipeline - 1);
                costs.took(&[kernel(pipeline, 100.0)], nanoseconds);
            }
            costs.expected(kernel(9, 1.0))
        };
        assert!((unknown(0.02 * MS) / MS - 0.16).abs() < 1e-6, "eight times as long as those that are known");
        assert_eq!(unknown(5.0 * MS), 2.0 * MS, "and never so long that less than three are a submit");
    }

    #[test]
    fn kernels_that_share_submits_are_told_apart() {
        let mut costs = Costs::default();
        let truth = |work: &Work| match work.kind {
            Kind::Kernel { pipeline: 1, .. } => 5_000.0 * work.units,
            _ => 100.0 * work.units,
        };
        let submits = [vec![kernel(1, 100.0), kernel(2, 900.0)], vec![kernel(2, 900.0)], vec![kernel(1, 200.0)]];
        for submit in submits.iter().cycle().take(60) {
            costs.took(submit, submit.iter().map(truth).sum());
        }
        for work in [kernel(1, 100.0), kernel(2, 900.0)] {
            let (expected, is) = (costs.expected(work), truth(&work));
            assert!((expected / is - 1.0).abs() < 0.2, "{work:?}: {expected} in place of {is}");
        }
    }

    #[test]
    fn another_speed_is_believed_of_all_kernels() {
        let mut costs = Costs::default();
        for _ in 0..8 {
            costs.took(&[kernel(1, 100.0)], MS);
            costs.took(&[kernel(2, 100.0)], MS);
        }
        costs.took(&[kernel(1, 100.0)], 50.0 * MS);
        let of_this = costs.expected(kernel(1, 100.0));
        assert!((of_this / MS - 50.0).abs() < 5.0, "{of_this}");
        let of_other = costs.expected(kernel(2, 100.0));
        assert!(of_other > 20.0 * MS, "a kernel that did not run meanwhile: {of_other}");
        costs.took(&[kernel(1, 100.0)], MS);
        assert!(costs.expected(kernel(2, 100.0)) < 3.0 * MS, "and back");
    }

    #[test]
    fn times_that_cannot_be_do_no_harm() {
        let mut costs = Costs::default();
        costs.took(&[], 5.0);
        costs.took(&[kernel(1, 0.0)], 0.0);
        for _ in 0..100 {
            costs.took(&[kernel(1, 10.0), Work { kind: Kind::Write, units: 0.0, times: 1.0 }], 0.0);
        }
        let expected = costs.expected(kernel(1, 10.0));
        assert!(expected.is_finite() && expected > 0.0, "{expected}");
        for _ in 0..100 {
            costs.took(&[kernel(1, 10.0)], 1e15);
        }
        assert!(costs.expected(kernel(1, 10.0)).is_finite());
    }
}
