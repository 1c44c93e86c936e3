//! What happens when work finds no room on the GPU: what nobody uses is freed, a prompt takes shorter passes, the work waits for sequences
//! that run, and only then it fails (vLLM preempts running sequences instead, and computes them again).
//!
//! Invariants:
//! - Work that fails gave its slot back before this begins to wait.
//! - Of the work that waits, one piece at a time tries again, in the order of its first failure. So two of them can't keep each other
//!   from running.
//! - Work fails only if nothing else had a slot while it was tried.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_util::future::{Either, select};

use super::cancel::Canceller;
use super::decoder::Decoder;
use super::pressure::{MemoryPressure, PressureAction};
use super::relief::{Patience, Relief};
use crate::error::{Code, Error, Result};

/// A pass over fewer tokens needs hardly less.
const FEWEST_TOKENS: usize = 32;

impl Decoder {
    /// Does `work`, and makes room for it as long as it ends in `out_of_memory`. `None` if it was cancelled while it waited.
    pub(super) async fn with_room<T>(
        &self,
        patience: &Patience,
        mut work: impl AsyncFnMut(Relief) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut relief = Relief::default();
        let mut turn = None;
        loop {
            let (was_idle, leases) = (self.slots.is_idle(), self.slots.leases());
            let error = match work(relief).await {
                Err(error) if error.code() == Code::OutOfMemory => error,
                done => return done.map(Some),
            };
            let needed_bytes = self.context.device().refused_bytes();
            let freed_bytes = self.free_unused().await?;
            if relief.keeps_texts {
                relief.keeps_texts = false;
                self.tell(PressureAction::Evicted, needed_bytes, freed_bytes, &error);
                continue;
            }
            if relief.most_tokens > FEWEST_TOKENS {
                relief.most_tokens = (relief.most_tokens / 4).max(FEWEST_TOKENS);
                self.tell(PressureAction::ShorterPasses, needed_bytes, 0, &error);
                continue;
            }
            // One lease is the work's own.
            let was_alone = was_idle && self.slots.is_idle() && self.slots.leases() <= leases + 1;
            let canceller = match patience {
                Patience::Waits(canceller) if !was_alone => canceller,
                _ => return Err(error),
            };
            if turn.is_none() {
                self.tell(PressureAction::Queued, needed_bytes, 0, &error);
            }
            let own = turn.take();
            let others = async {
                let turn = match own {
                    Some(turn) => turn,
                    None => self.memory_turn.lock().await,
                };
                if !self.slots.is_idle() {
                    self.slots.next_return().await;
                }
                turn
            };
            turn = match select(pin!(others), pin!(cancelled(canceller))).await {
                Either::Left((taken, _)) => Some(taken),
                Either::Right(_) => return Ok(None),
            };
        }
    }

    /// The same for work that nobody cancels but by dropping it.
    pub(super) async fn with_room_at_last<T>(&self, work: impl AsyncFnMut(Relief) -> Result<T>) -> Result<T> {
        match self.with_room(&Patience::Waits(Canceller::default()), work).await? {
            Some(done) => Ok(done),
            None => bail!(Internal, "work was cancelled that nobody can cancel"),
        }
    }

    /// Frees what no sequence uses. Returns how many bytes.
    async fn free_unused(&self) -> Result<u64> {
        let device = self.context.device();
        let before = device.holdings().live_bytes;
        self.prompt_cache.borrow_mut().clear();
        self.slots.shed();
        self.scheduler.borrow_mut().shed();
        device.free_unused().await?;
        Ok(before.saturating_sub(device.holdings().live_bytes))
    }

    fn tell(&self, action: PressureAction, needed_bytes: u64, freed_bytes: u64, error: &Error) {
        let held_bytes = self.context.device().holdings().live_bytes;
        let done = match action {
            PressureAction::Evicted => format!("{:.1} MB that no request uses were freed", freed_bytes as f64 / 1e6),
            PressureAction::ShorterPasses => "the prompt is taken in by shorter passes".to_owned(),
            PressureAction::Queued => "the request waits until another one ends".to_owned(),
            PressureAction::ShorterContext => "a shorter context was taken".to_owned(),
        };
        let message = format!("{}; {done}", error.message());
        self.pressure.tell(&MemoryPressure { action, needed_bytes, freed_bytes, held_bytes, message });
    }
}

async fn cancelled(canceller: &Canceller) {
    poll_fn(|task| {
        if canceller.is_cancelled() {
            return Poll::Ready(());
        }
        canceller.wait(task.waker());
        Poll::Pending
    })
    .await
}
