//! The clock of submits: the host's, or that of a GPU that a test makes up.

use web_time::{Duration, Instant};

use crate::gpu::simulated::SimulatedGpu;

pub(super) enum Clock {
    Host(Instant),
    Simulated(SimulatedGpu),
}

impl Clock {
    pub fn new(simulated: Option<SimulatedGpu>) -> Self {
        simulated.map_or_else(|| Self::Host(Instant::now()), Self::Simulated)
    }

    pub fn now(&self) -> Duration {
        self.at(Instant::now())
    }

    /// The time of an instant; a simulated GPU knows only its own.
    pub fn at(&self, instant: Instant) -> Duration {
        match self {
            Self::Host(start) => instant.saturating_duration_since(*start),
            Self::Simulated(gpu) => gpu.now(),
        }
    }

    pub fn simulated(&self) -> Option<&SimulatedGpu> {
        match self {
            Self::Host(_) => None,
            Self::Simulated(gpu) => Some(gpu),
        }
    }
}
