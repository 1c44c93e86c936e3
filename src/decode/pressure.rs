//! What an application is told when the GPU's memory runs short.

use std::fmt;
use std::rc::Rc;

use serde::Serialize;

/// What was done about it. `shorter_context`: a load took a shorter context than its default. `evicted`: what no request uses was freed, such as the
/// prompt cache. `shorter_passes`: a prompt is taken in by shorter passes. `queued`: a request waits until another one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum PressureAction {
    /// A load took a shorter context than its default.
    ShorterContext,
    /// What no request uses was freed: the prompt cache, the recorded steps of idle sequences, and memory that waits for reuse.
    Evicted,
    /// A prompt is taken in by shorter passes, which need less.
    ShorterPasses,
    /// A request waits until a running one ends.
    Queued,
}

/// The GPU's memory ran short, and something was done about it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MemoryPressure {
    /// What was done.
    pub action: PressureAction,
    /// What there was no room for, in bytes.
    pub needed_bytes: u64,
    /// How many bytes were freed.
    pub freed_bytes: u64,
    /// Bytes that the engine holds on the GPU after that.
    pub held_bytes: u64,
    /// For people; it may change.
    pub message: String,
}

type Listen = dyn Fn(&MemoryPressure);

/// Whoever wants to be told.
#[derive(Clone, Default)]
pub struct PressureListener(Option<Rc<Listen>>);

impl PressureListener {
    /// `listen` must not ask the engine anything.
    pub fn new(listen: impl Fn(&MemoryPressure) + 'static) -> Self {
        Self(Some(Rc::new(listen)))
    }

    /// Tells it, if anybody listens.
    pub fn tell(&self, pressure: &MemoryPressure) {
        if let Some(listen) = &self.0 {
            listen(pressure);
        }
    }
}

impl fmt::Debug for PressureListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "PressureListener" } else { "no PressureListener" })
    }
}
