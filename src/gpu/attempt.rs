//! Steps that may find no room on the GPU. WebGPU does not throw where memory runs out: it hands out a buffer that does not work, and tells an
//! error scope. So a step that allocates runs inside scopes.
//!
//! Invariants:
//! - What goes wrong inside is the step's alone: no other wait hears of it, and nothing that others recorded is in its submits.
//! - No buffer of a step is used by others before it is known that there was room, and none of one that found no room is used again.
//! - A step that made no buffer is not waited for.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use super::recorder::{HeldBack, Made, Recorder};
use super::stats::FlushReason;
use crate::error::{Code, Error, Result};

/// Runs `step`, submits what it recorded, and waits until it is known whether there was room for what it allocated. `what` names it in an
/// error. A step that is planned is only run: it allocates nothing here.
pub(super) async fn attempt<T>(recorder: &Recorder, what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    if recorder.is_tracing() || recorder.is_capturing() {
        return step();
    }
    recorder.flush(FlushReason::Explicit);
    let held = Held::new(recorder);
    let submitting = || {
        let result = step();
        recorder.flush(FlushReason::Explicit);
        held.last.set(recorder.raw.timeline.submitted());
        held.begin();
        result
    };
    let result = allocate(recorder, what, submitting).await;
    held.is_wanted.set(result.is_ok());
    result
}

/// Keeps a step's commands from the GPU while it is not known whether there was room for what they use: what goes there later does so outside of the
/// scopes. If there was none, or whoever waits is dropped, they are taken back. Where nothing else waits, what may go at once goes inside of the
/// scopes, so that the GPU has work meanwhile.
struct Held<'a> {
    recorder: &'a Recorder,
    first: u64,
    last: Cell<u64>,
    is_wanted: Cell<bool>,
    has_begun: Cell<bool>,
}

impl<'a> Held<'a> {
    fn new(recorder: &'a Recorder) -> Self {
        let first = recorder.raw.timeline.submitted();
        let held =
            Self { recorder, first, last: Cell::new(first), is_wanted: Cell::new(false), has_begun: Cell::new(false) };
        // Commands of others would go inside of the scopes too.
        if !recorder.queue.is_drained() {
            held.begin();
        }
        held
    }

    fn begin(&self) {
        if !self.has_begun.replace(true) {
            self.recorder.queue.hold();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let queue = &self.recorder.queue;
        if !self.is_wanted.get() {
            queue.drop_unsent(self.first, self.last.get());
        }
        if self.has_begun.get() {
            queue.release();
        }
    }
}

/// The same for a step that records nothing, or submits what it records.
pub(super) async fn allocate<T>(recorder: &Recorder, what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    let raw = &recorder.raw;
    raw.check_usable()?;
    let made = recorder.made();
    let before = raw.counters.allocated_bytes.get();
    let scopes = raw.faults.open_scopes(&raw.wgpu);
    let result = step();
    let outcome = raw.faults.close_scopes(scopes);
    let needed = raw.counters.allocated_bytes.get() - before;
    if !recorder.has_made_buffers_since(&made) && !outcome.is_refused {
        // The next wait reports what else went wrong.
        raw.faults.watch_outcome(outcome, what);
        return result;
    }
    let mut undecided = Undecided::new(recorder, made);
    if raw.options.simulated_gpu.is_some() {
        answer_late().await;
    }
    let Some(error) = outcome.error(what, needed).await else {
        undecided.works = true;
        return result;
    };
    // Its handles go first: what they name is not to be used again.
    drop(result);
    drop(undecided);
    raw.refused_bytes.set(needed);
    raw.check_usable()?;
    // It may have got a buffer of another step that found no room, which was on its way back to the pool when that was known.
    let is_of_another = error.code() == Code::GpuValidation && raw.shortages.get() > 0;
    let error = if is_of_another { Error::new(Code::OutOfMemory, error.message()) } else { error };
    if error.code() == Code::OutOfMemory {
        raw.shortages.set(raw.shortages.get() + 1);
    }
    Err(error)
}

/// Keeps what a step made from others until it is known whether it works. Where it does not, or nobody waits any more, it is not used again.
struct Undecided<'a> {
    recorder: &'a Recorder,
    held: HeldBack,
    works: bool,
}

impl<'a> Undecided<'a> {
    fn new(recorder: &'a Recorder, made: Made) -> Self {
        Self { recorder, held: recorder.hold_since(&made), works: false }
    }
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        self.recorder.decide(self.held);
        if !self.works {
            self.recorder.forget(self.held);
        }
    }
}

/// Lets others work for a while, as a browser does before a scope answers; native scopes answer at once.
async fn answer_late() {
    let mut turns = 8;
    poll_fn(|task| {
        turns -= 1;
        if turns == 0 {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
