//! How kernels are timed: in chains, by the device's clock or by a test's.

use web_time::{Duration, Instant};

use crate::error::Result;
use crate::tensor::Context;
use crate::tensor::tuning::{TuningKey, Variant};

/// Dispatches of one kernel, one after the other.
pub struct Chain<'a> {
    /// The kernel.
    pub key: &'a TuningKey,
    /// The variant; `None`: the default.
    pub variant: Option<&'a Variant>,
    /// The number of dispatches.
    pub dispatches: usize,
    pub(super) record: &'a dyn Fn() -> Result<()>,
}

impl Chain<'_> {
    /// Records the dispatches.
    pub fn record(&self) -> Result<()> {
        (self.record)()
    }
}

/// What measures time for autotuning; tests have their own.
#[expect(async_fn_in_trait, reason = "nothing here leaves its thread")]
pub trait Clock {
    /// Time since the start.
    fn now(&self) -> Duration;

    /// How long a chain must take to be measured well.
    fn least_chain(&self, context: &Context) -> Duration;

    /// How long each chain takes by itself; zero if it could not be measured.
    async fn time(&self, context: &Context, chains: &[Chain<'_>]) -> Result<Vec<Duration>>;
}

/// The clock of the device: its timestamps if it has them, otherwise the time of a wait for it.
pub struct DeviceClock(Instant);

impl DeviceClock {
    /// A clock whose `now` counts from this call.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for DeviceClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn least_chain(&self, context: &Context) -> Duration {
        if context.device().capabilities().timestamp_query {
            // Browsers round timestamps to a tenth of a millisecond.
            Duration::from_millis(3)
        } else {
            // A wait ends at a poll, every millisecond or two.
            Duration::from_millis(20)
        }
    }

    async fn time(&self, context: &Context, chains: &[Chain<'_>]) -> Result<Vec<Duration>> {
        context.device().time_chains(chains.len(), &|chain| chains[chain].record()).await
    }
}
