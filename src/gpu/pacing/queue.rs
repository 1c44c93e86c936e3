//! What was flushed, on its way to the GPU.
//!
//! Invariants:
//! - Everything reaches the GPU in the order of the flushes and of the writes between them.
//! - Commands are kept until they are submitted. So the uniforms and bind groups in them are pinned, and nothing overwrites them.
//! - As long as something waits, something is in flight, and whoever waits for the GPU (`until`) sends what waits when that is done. While all
//!   is held, whoever waits is woken when that ends.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use web_time::{Duration, Instant};

use super::backlog::{Item, Next, Piece, Segment, State, Then, simulated_work};
use super::clock::Clock;
use super::costs::Work;
use super::{TARGET, is_page_hidden};
use crate::error::Result;
use crate::gpu::command::Command;
use crate::gpu::pool::BufferPool;
use crate::gpu::profile::Profiler;
use crate::gpu::raw::RawDevice;
use crate::gpu::simulated::SimulatedWork;
use crate::gpu::submit::submit;

/// Pieces that were reported as done within this time of each other were found done by one look.
const SAME_LOOK: Duration = Duration::from_micros(300);

/// Shared with callbacks, which natively may run on another thread.
#[derive(Default)]
struct Arrivals {
    done: Vec<(u64, Instant)>,
    waiting: Vec<Waker>,
}

pub struct SubmitQueue {
    raw: Rc<RawDevice>,
    pool: Rc<BufferPool>,
    pub profiler: Profiler,
    is_on: Cell<bool>,
    /// How many want that nothing is sent now.
    holds: Cell<u32>,
    clock: Clock,
    state: RefCell<State>,
    arrivals: Arc<Mutex<Arrivals>>,
}

impl SubmitQueue {
    pub fn new(raw: Rc<RawDevice>, pool: Rc<BufferPool>) -> Self {
        let clock = Clock::new(raw.options.simulated_gpu.clone());
        Self {
            raw,
            pool,
            profiler: Profiler::default(),
            is_on: Cell::new(false),
            holds: Cell::new(0),
            clock,
            state: RefCell::default(),
            arrivals: Arc::default(),
        }
    }

    /// Whether what is flushed from now on is cut and waits. What waits is sent if not.
    pub fn set_paced(&self, on: bool) {
        self.is_on.set(on);
        self.pump();
    }

    pub fn is_paced(&self) -> bool {
        self.is_on.get() && !is_page_hidden()
    }

    /// Whether what is flushed now goes through the backlog.
    pub fn holds_back(&self) -> bool {
        self.is_paced() || !self.state.borrow().backlog.is_empty() || self.clock.simulated().is_some()
    }

    /// The time by which submits are measured.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// How long the longest dispatch since the last call is expected to take.
    pub fn take_longest(&self) -> Duration {
        Duration::from_nanos(std::mem::take(&mut self.state.borrow_mut().longest) as u64)
    }

    /// Takes what was flushed, and sends what may go now.
    pub fn push(&self, segment: Segment) {
        if self.holds_back() {
            self.collect();
            self.state.borrow_mut().push(segment);
            return self.pump();
        }
        let Segment { number, commands, reason, .. } = segment;
        submit(&self.raw, &self.profiler, &self.pool, &commands, reason);
        drop(commands);
        self.is_sent(number, Vec::new());
    }

    /// A flush was submitted as a whole.
    fn is_sent(&self, number: u64, then: Vec<Then>) {
        self.raw.timeline.sent(number);
        then.into_iter().for_each(|then| then());
        if self.pool.has_retired() {
            self.raw.report_when_done();
            self.pool.reap();
        }
    }

    /// Takes a write of `bytes` bytes to the queue, which comes after all that was flushed.
    pub fn push_write(&self, bytes: u64, write: impl FnOnce(&RawDevice) -> Result<()> + 'static) {
        self.state.borrow_mut().backlog.push_back(Item::Write(bytes, Box::new(write)));
        // The buffer is in use until the next submission is done.
        self.raw.timeline.set_open(true);
        self.pump();
    }

    /// Does something when a flush has reached the GPU: now, if it has.
    pub fn after(&self, number: u64, then: Then) {
        let mut state = self.state.borrow_mut();
        for item in &mut state.backlog {
            if let Item::Segment(segment, _, follows) = item
                && segment.number >= number
            {
                return follows.push(then);
            }
        }
        drop(state);
        then();
    }

    /// Takes back what of the flushes after `first` up to `last` was not submitted.
    pub fn drop_unsent(&self, first: u64, last: u64) {
        for item in &mut self.state.borrow_mut().backlog {
            if let Item::Segment(segment, done, _) = item
                && segment.number > first
                && segment.number <= last
            {
                segment.commands.truncate(*done);
                if *done == 0 {
                    segment.staged = None;
                }
            }
        }
        self.pump();
    }

    /// Sends all that waits.
    pub fn send_all(&self) {
        let was_on = self.is_on.replace(false);
        self.pump();
        self.is_on.set(was_on);
    }

    /// Forgets what waits. Whoever waits for it hears that it was dropped.
    pub fn forget(&self) {
        let mut state = self.state.borrow_mut();
        let backlog = std::mem::take(&mut state.backlog);
        state.in_flight.clear();
        drop(state);
        let last = backlog.iter().rev().find_map(|item| match item {
            Item::Segment(segment, ..) => Some(segment.number),
            Item::Write(..) => None,
        });
        if let Some(number) = last {
            self.raw.timeline.sent(number);
        }
        drop(backlog);
    }

    /// Keeps what is flushed until `release`. What is not held back anyway is sent at once as before.
    pub fn hold(&self) {
        self.holds.set(self.holds.get() + 1);
    }

    /// Whether what is flushed next is the first that may go.
    pub fn is_drained(&self) -> bool {
        !self.is_held() && self.state.borrow().backlog.is_empty()
    }

    fn is_held(&self) -> bool {
        self.holds.get() > 0
    }

    /// Ends a `hold`; after the last one sends what was held.
    pub fn release(&self) {
        self.holds.set(self.holds.get().saturating_sub(1));
        if self.is_held() {
            return;
        }
        self.pump();
        let waiting = self.arrivals.lock().map(|mut arrivals| std::mem::take(&mut arrivals.waiting));
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// Sends what may go now.
    pub fn pump(&self) {
        self.collect();
        if self.is_held() || self.state.borrow().backlog.is_empty() {
            return;
        }
        if self.raw.check_usable().is_err() {
            return self.forget();
        }
        let cuts = !self.profiler.times_submits();
        loop {
            let is_paced = self.is_paced();
            // Not held while it is sent.
            let next = self.state.borrow_mut().next(is_paced, cuts);
            match next {
                None => break,
                Some(next) => self.send(next, is_paced),
            }
        }
    }

    fn send(&self, next: Next, is_paced: bool) {
        match next {
            Next::Write(write, work) => {
                if let Err(error) = write(&self.raw) {
                    self.raw.faults.report(error);
                }
                let mut state = self.state.borrow_mut();
                state.loose.push(work);
                let is_enough = state.loose() >= TARGET.as_nanos() as f64;
                drop(state);
                if is_enough && is_paced {
                    self.fence();
                }
            }
            Next::Fence => self.fence(),
            Next::Commands { commands, staged, reason, parts, expected, ends } => {
                if let Some((ring, bytes)) = staged {
                    self.raw.queue.write_buffer(&ring, 0, &bytes);
                }
                if !commands.is_empty() {
                    submit(&self.raw, &self.profiler, &self.pool, &commands, reason);
                    self.track(&commands, parts, expected, is_paced);
                } else if !self.state.borrow().loose.is_empty() {
                    self.fence();
                }
                drop(commands);
                if let Some((number, then)) = ends {
                    self.is_sent(number, then);
                }
            }
        }
    }

    /// An empty submit, so that the writes before it can be waited for.
    fn fence(&self) {
        self.raw.queue.submit([]);
        self.track(&[], Vec::new(), 0.0, self.is_paced());
    }

    /// Asks to be told when the last submit is done.
    fn track(&self, commands: &[Command], mut parts: Vec<Work>, mut expected: f64, is_paced: bool) {
        let mut state = self.state.borrow_mut();
        let loose = std::mem::take(&mut state.loose);
        let simulated = self.clock.simulated().map(|gpu| {
            let writes = loose.iter().map(|work| SimulatedWork::Write { bytes: work.units as u64 });
            let times: Vec<Duration> =
                writes.chain(commands.iter().map(simulated_work)).map(|work| gpu.time(work)).collect();
            gpu.submit(&times, commands.iter().filter(|command| command.is_dispatch()).count())
        });
        if !is_paced {
            return;
        }
        expected += loose.iter().map(|work| state.costs.expected(*work)).sum::<f64>();
        parts.extend(loose);
        state.last_number += 1;
        let number = state.last_number;
        state.in_flight.push_back(Piece { number, parts, expected, sent: self.now(), simulated });
        drop(state);
        let arrivals = self.arrivals.clone();
        self.raw.queue.on_submitted_work_done(move || {
            let waiting = arrivals.lock().map(|mut arrivals| {
                arrivals.done.push((number, Instant::now()));
                std::mem::take(&mut arrivals.waiting)
            });
            waiting.into_iter().flatten().for_each(Waker::wake);
        });
    }

    /// Learns from what was reported as done.
    fn collect(&self) {
        let done = self.arrivals.lock().map(|mut arrivals| std::mem::take(&mut arrivals.done)).unwrap_or_default();
        if done.is_empty() {
            return;
        }
        let mut state = self.state.borrow_mut();
        let mut group: Option<(Duration, Duration, Vec<Work>)> = None;
        for (number, at) in done {
            while state.in_flight.front().is_some_and(|piece| piece.number <= number) {
                let Some(piece) = state.in_flight.pop_front() else { break };
                let at = piece.simulated.unwrap_or_else(|| self.clock.at(at));
                if let Some(gpu) = self.clock.simulated() {
                    gpu.arrived(at);
                }
                match &mut group {
                    Some((_, last, parts)) if at.saturating_sub(*last) < SAME_LOOK => {
                        *last = at.max(*last);
                        parts.extend(piece.parts);
                    }
                    _ => {
                        let finished = group.replace((piece.sent, at, piece.parts));
                        state.learn(finished);
                    }
                }
            }
        }
        state.learn(group);
    }

    /// Resolves when `future` does. Sends what waits meanwhile.
    pub async fn until<F: Future + Unpin>(&self, mut future: F) -> F::Output {
        poll_fn(move |task| {
            loop {
                self.pump();
                if let Poll::Ready(value) = Pin::new(&mut future).poll(task) {
                    return Poll::Ready(value);
                }
                if self.state.borrow().in_flight.is_empty() && !self.is_held() {
                    // Natively nothing else hears of what was sent just now.
                    self.raw.drive();
                    return Pin::new(&mut future).poll(task);
                }
                let Ok(mut arrivals) = self.arrivals.lock() else { return Poll::Pending };
                if arrivals.done.is_empty() && !arrivals.waiting.iter().any(|waker| waker.will_wake(task.waker())) {
                    arrivals.waiting.push(task.waker().clone());
                }
                drop(arrivals);
                self.raw.drive();
                if self.arrivals.lock().is_ok_and(|arrivals| arrivals.done.is_empty()) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Waits until a flush and all before it have been submitted.
    pub async fn sent(&self, number: u64) {
        self.until(poll_fn(|_| if self.raw.timeline.is_sent(number) { Poll::Ready(()) } else { Poll::Pending })).await;
    }

    /// Waits until the flushes after `first` up to `last` have been submitted. If they are no longer wanted before that, takes back what
    /// has not been, and returns false.
    pub async fn sent_while(&self, first: u64, last: u64, is_wanted: &dyn Fn() -> bool) -> Result<bool> {
        let is_sent = self
            .until(poll_fn(|_| {
                if self.raw.timeline.is_sent(last) {
                    Poll::Ready(true)
                } else if is_wanted() {
                    Poll::Pending
                } else {
                    Poll::Ready(false)
                }
            }))
            .await;
        if !is_sent {
            self.drop_unsent(first, last);
        }
        self.raw.check_usable()?;
        Ok(is_sent)
    }
}
