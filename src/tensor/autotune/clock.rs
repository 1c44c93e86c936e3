//! How kernels are timed: in chains, by the device's clock or one that tests bring.

use web_time::{Duration, Instant};

use crate::error::Result;
use crate::tensor::Context;
use crate::tensor::tuning::{TuningKey, Variant};

/// Dispatches of one kernel, one after the other.
pub struct Chain<'a> {
    pub key: &'a TuningKey,
    pub variant: Option<&'a Variant>,
    pub dispatches: usize,
    pub(super) record: &'a dyn Fn() -> Result<()>,
}

impl Chain<'_> {
    pub fn record(&self) -> Result<()> {
        (self.record)()
    }
}

/// What autotuning goes by; tests bring their own.
#[expect(async_fn_in_trait, reason = "nothing here leaves its thread")]
pub trait Clock {
    /// Time since the start.
    fn now(&self) -> Duration;

    /// How long a chain has to take for its time to say something.
    fn least_chain(&self, context: &Context) -> Duration;

    /// How long the chains take, each run by itself; zero for one that could not be measured.
    async fn time(&self, context: &Context, chains: &[Chain<'_>]) -> Result<Vec<Duration>>;
}

/// The clock of the device: its timestamps where it has some, else the time that a wait for it takes.
pub struct DeviceClock(Instant);

impl DeviceClock {
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
            // Waits end on a poll every millisecond or two.
            Duration::from_millis(20)
        }
    }

    async fn time(&self, context: &Context, chains: &[Chain<'_>]) -> Result<Vec<Duration>> {
        context.device().time_chains(chains.len(), &|chain| chains[chain].record()).await
    }
}
