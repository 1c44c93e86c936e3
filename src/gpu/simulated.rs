//! A GPU whose speed a test makes up, to see how submits are sized.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use web_time::Duration;

/// A part of a submit, of which a made-up GPU says how long it takes.
#[derive(Clone, Copy, Debug)]
pub enum SimulatedWork<'a> {
    /// A dispatch.
    Dispatch {
        /// The name of its shader.
        kernel: &'a str,
        /// Of its whole grid.
        workgroups: u64,
    },
    /// A copy from buffer to buffer.
    Copy {
        /// How many bytes.
        bytes: u64,
    },
    /// A write by the host.
    Write {
        /// How many bytes.
        bytes: u64,
    },
}

/// How long a made-up GPU takes for a part of a submit.
pub type SimulatedTime = dyn Fn(SimulatedWork<'_>) -> Duration;

/// A GPU whose speed is made up, for tests: the work runs on the real one, and its times are those that a function gives.
#[derive(Clone)]
pub struct SimulatedGpu(Rc<Simulated>);

struct Simulated {
    time: Box<SimulatedTime>,
    now: Cell<Duration>,
    busy_until: Cell<Duration>,
    submits: RefCell<Vec<SimulatedSubmit>>,
}

/// What a made-up GPU was given at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedSubmit {
    /// How long it takes.
    pub time: Duration,
    /// How long its longest part takes, which can't be cut.
    pub longest: Duration,
    /// How much work was queued before it.
    pub queued: Duration,
    /// The number of its dispatches.
    pub dispatches: usize,
}

impl fmt::Debug for SimulatedGpu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SimulatedGpu").finish_non_exhaustive()
    }
}

impl SimulatedGpu {
    /// `time` says how long each part of a submit takes.
    pub fn new(time: impl Fn(SimulatedWork<'_>) -> Duration + 'static) -> Self {
        let (now, busy_until) = (Cell::default(), Cell::default());
        Self(Rc::new(Simulated { time: Box::new(time), now, busy_until, submits: RefCell::default() }))
    }

    /// What was submitted since the last call.
    pub fn take_submits(&self) -> Vec<SimulatedSubmit> {
        self.0.submits.take()
    }

    /// The time that this GPU has come to.
    pub fn now(&self) -> Duration {
        self.0.now.get()
    }

    /// How long some work takes.
    pub(super) fn time(&self, work: SimulatedWork<'_>) -> Duration {
        (self.0.time)(work)
    }

    /// Takes a submit in, and returns when it will be done.
    pub(super) fn submit(&self, parts: &[Duration], dispatches: usize) -> Duration {
        let Simulated { now, busy_until, submits, .. } = &*self.0;
        let begin = busy_until.get().max(now.get());
        let time = parts.iter().sum();
        let longest = parts.iter().max().copied().unwrap_or_default();
        let queued = begin - now.get();
        submits.borrow_mut().push(SimulatedSubmit { time, longest, queued, dispatches });
        busy_until.set(begin + time);
        begin + time
    }

    /// The host hears that something was done.
    pub(super) fn arrived(&self, at: Duration) {
        self.0.now.set(self.0.now.get().max(at));
    }
}
