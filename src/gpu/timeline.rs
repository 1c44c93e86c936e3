//! Which submissions the GPU has finished.
//!
//! Submissions finish in order, so one number is enough. It moves on when a wait for the GPU ends or a read-back is mapped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_channel::oneshot;

/// Shared with callbacks, which natively may run on another thread.
type Shared = Arc<Mutex<Finished>>;

#[derive(Default)]
struct Finished {
    number: u64,
    /// The submission that a read-back under way will report.
    expected: Option<u64>,
    /// Those who wait for a submission; they learn whether it is known to be done.
    waiting: Vec<(u64, oneshot::Sender<bool>)>,
}

#[derive(Default)]
pub(super) struct Timeline {
    /// What was flushed counts as submitted, also while it waits for its turn.
    submitted: Cell<u64>,
    /// Of the submissions, those that the GPU was given as a whole.
    sent: Cell<u64>,
    /// Whether something is recorded that goes with the next submission.
    is_open: Cell<bool>,
    /// Whether the queue was handed writes after the last submission.
    has_writes: Cell<bool>,
    writes: RefCell<Writes>,
    finished: Shared,
}

/// Bytes that were written, by the submission that comes after them.
#[derive(Default)]
struct Writes {
    unfinished: VecDeque<(u64, u64)>,
    bytes: u64,
    peak: u64,
}

/// Reports a submission as done, or as one that nothing will report any more.
pub(super) struct Report {
    number: u64,
    finished: Shared,
}

impl Writes {
    fn forget(&mut self, finished: u64) {
        while self.unfinished.front().is_some_and(|(submission, _)| *submission <= finished)
            && let Some((_, bytes)) = self.unfinished.pop_front()
        {
            self.bytes -= bytes;
        }
    }
}

impl Timeline {
    /// Tells whether something is recorded that the next submission will take along.
    pub fn set_open(&self, is_open: bool) {
        self.is_open.set(is_open);
    }

    /// Counts a submission, which takes along all that was recorded, and comes after all that was written. Returns its number.
    pub fn submit(&self) -> u64 {
        self.submitted.set(self.submitted.get() + 1);
        self.is_open.set(false);
        self.has_writes.set(false);
        self.submitted.get()
    }

    /// The GPU was given a submission, and so all before it.
    pub fn sent(&self, number: u64) {
        self.sent.set(self.sent.get().max(number));
    }

    pub fn is_sent(&self, number: u64) -> bool {
        self.sent.get() >= number
    }

    /// The queue was handed a write of `bytes` bytes, which no submission has taken along.
    pub fn wrote(&self, bytes: u64) {
        self.has_writes.set(true);
        let finished = self.finished();
        let mut writes = self.writes.borrow_mut();
        writes.forget(finished);
        writes.unfinished.push_back((self.submitted.get() + 1, bytes));
        writes.bytes += bytes;
        writes.peak = writes.peak.max(writes.bytes);
    }

    /// Bytes that were written and that no finished submission came after.
    pub fn unfinished_write_bytes(&self) -> u64 {
        let finished = self.finished();
        let mut writes = self.writes.borrow_mut();
        writes.forget(finished);
        writes.bytes
    }

    /// The most of them at one time.
    pub fn peak_unfinished_write_bytes(&self) -> u64 {
        self.writes.borrow().peak
    }

    /// Whether writes wait for a submission.
    pub fn has_writes(&self) -> bool {
        self.has_writes.get()
    }

    /// The last submission that can use a buffer that was dropped now.
    pub fn last_use(&self) -> u64 {
        self.submitted.get() + u64::from(self.is_open.get())
    }

    pub fn submitted(&self) -> u64 {
        self.submitted.get()
    }

    pub fn finished(&self) -> u64 {
        self.finished.lock().map_or(0, |finished| finished.number)
    }

    /// What will report all that the GPU was given.
    pub fn report(&self) -> Report {
        self.report_of(self.sent.get())
    }

    /// What will report a submission that others came after.
    pub fn report_of(&self, number: u64) -> Report {
        Report { number, finished: self.finished.clone() }
    }

    /// The mapping of a read-back will report the last submission.
    pub fn reported_by_readback(&self) -> Report {
        if let Ok(mut finished) = self.finished.lock() {
            finished.expected = Some(self.submitted.get());
        }
        self.report_of(self.submitted.get())
    }

    /// A wait for the last submission that asks nothing of the GPU; `None` if nothing else will report the submission.
    pub fn wait_for_readback(&self) -> Option<oneshot::Receiver<bool>> {
        let mut finished = self.finished.lock().ok()?;
        if finished.expected != Some(self.submitted.get()) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        finished.waiting.push((self.submitted.get(), sender));
        Some(receiver)
    }
}

impl Report {
    pub fn done(self, is_done: bool) {
        let Ok(mut finished) = self.finished.lock() else { return };
        if is_done {
            finished.number = finished.number.max(self.number);
        }
        if finished.expected == Some(self.number) {
            finished.expected = None;
        }
        let (told, waiting) = std::mem::take(&mut finished.waiting)
            .into_iter()
            .partition(|(number, _)| if is_done { *number <= self.number } else { *number == self.number });
        finished.waiting = waiting;
        let told: Vec<(u64, oneshot::Sender<bool>)> = told;
        for (_, sender) in told {
            // A receiver that was dropped stopped waiting.
            let _ = sender.send(is_done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(timeline: &Timeline) {
        let number = timeline.submit();
        timeline.sent(number);
    }

    #[test]
    fn a_later_report_finishes_all_before_it() {
        let timeline = Timeline::default();
        submit(&timeline);
        let first = timeline.reported_by_readback();
        let mut wait = timeline.wait_for_readback().unwrap();
        submit(&timeline);
        assert!(timeline.wait_for_readback().is_none(), "nothing will report the second");
        timeline.report().done(true);
        assert_eq!(timeline.finished(), 2);
        assert_eq!(wait.try_recv(), Ok(Some(true)));
        first.done(true);
        assert_eq!(timeline.finished(), 2, "an older report does not turn time back");
    }

    #[test]
    fn what_is_recorded_goes_with_the_next_submission() {
        let timeline = Timeline::default();
        assert_eq!(timeline.last_use(), 0);
        timeline.set_open(true);
        assert_eq!(timeline.last_use(), 1);
        submit(&timeline);
        assert_eq!(timeline.last_use(), 1);
        timeline.set_open(true);
        timeline.set_open(false);
        assert_eq!(timeline.last_use(), 1, "what was recorded was taken back");
    }

    #[test]
    fn writes_wait_for_the_next_submission() {
        let timeline = Timeline::default();
        submit(&timeline);
        timeline.report().done(true);
        timeline.wrote(10);
        timeline.wrote(20);
        assert!(timeline.has_writes());
        assert_eq!(timeline.unfinished_write_bytes(), 30);
        submit(&timeline);
        assert!(!timeline.has_writes());
        timeline.wrote(5);
        timeline.report().done(true);
        assert_eq!((timeline.unfinished_write_bytes(), timeline.peak_unfinished_write_bytes()), (5, 35));
        submit(&timeline);
        assert!(timeline.finished() < timeline.submitted());
    }

    #[test]
    fn a_failed_report_wakes_and_finishes_nothing() {
        let timeline = Timeline::default();
        submit(&timeline);
        let report = timeline.reported_by_readback();
        let mut wait = timeline.wait_for_readback().unwrap();
        report.done(false);
        assert_eq!(wait.try_recv(), Ok(Some(false)));
        assert_eq!(timeline.finished(), 0);
        assert!(timeline.wait_for_readback().is_none(), "nothing more will be heard of it");
    }

    #[test]
    fn a_report_finishes_only_what_the_gpu_was_given() {
        let timeline = Timeline::default();
        submit(&timeline);
        let held_back = timeline.submit();
        assert!(!timeline.is_sent(held_back));
        timeline.report().done(true);
        assert_eq!((timeline.finished(), timeline.submitted()), (1, 2));
        timeline.sent(held_back);
        timeline.report().done(true);
        assert_eq!(timeline.finished(), 2);
    }
}
