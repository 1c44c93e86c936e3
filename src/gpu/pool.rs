//! The memory of storage buffers: GPU buffers that wait for reuse, by size, and those that the GPU still uses.
//!
//! Invariants:
//! - The id names one GPU buffer for the device's whole life and is never given to another, so what is keyed by it
//!   (bind groups) can't be stale: a reused buffer keeps its id, a destroyed one takes its id with it.
//! - A buffer may come back while commands that use it are recorded, or submitted and not done. Reuse is safe, because
//!   commands run in program order; destruction waits until the GPU has finished the submission.
//! - What was given up and waits for that end is reused before anything is made: until then its memory is not free for others. So commands that are
//!   recorded far ahead of the GPU take no more than as many buffers of each size as they use at one time.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use super::bind_groups::BindGroups;
use super::free_list::FreeList;
use super::id_ranges::{IdRange, IdRanges};
use super::raw::RawDevice;
use super::stats::{PoolStats, add};
use crate::error::{Code, Result};

/// Sizes up to this one are rounded up to whole MiB.
const LARGEST_ROUNDED: u64 = 64 << 20;

#[derive(Clone)]
pub(super) struct RawBuffer {
    pub wgpu: wgpu::Buffer,
    pub id: u64,
}

pub(super) struct BufferPool {
    raw: Rc<RawDevice>,
    bind_groups: Rc<BindGroups>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Buffers that wait for reuse.
    free: FreeList<RawBuffer>,
    last_id: u64,
    /// To be destroyed.
    retired: Vec<Retired>,
    /// Those of steps that found no room: they may not work, so they are not used again.
    suspects: IdRanges,
    /// Those of steps of which it is not known yet whether there was room: they wait in `free` until it is.
    undecided: IdRanges,
    /// Buffers up to this id are known to work.
    trusted: u64,
    stats: PoolStats,
}

struct Retired {
    /// The submission after which nothing names it.
    last_use: u64,
    raw: RawBuffer,
    /// It was one of those that wait for reuse.
    is_spare: bool,
}

impl State {
    fn take(&mut self, class: u64, submission: u64) -> Option<RawBuffer> {
        let found = self.free.take_where(class, submission, |raw| !self.undecided.contains(raw.id));
        found.or_else(|| {
            let fits = |Retired { raw, is_spare, .. }: &Retired| {
                let works = !self.undecided.contains(raw.id) && !self.suspects.contains(raw.id);
                *is_spare && raw.wgpu.size() == class && works
            };
            // Those before it are destroyed sooner.
            let at = self.retired.iter().rposition(fits)?;
            Some(self.retired.remove(at).raw)
        })
    }
}

/// Sizes are rounded up so that close sizes share buffers. Three classes: small ones (below 4 KiB) to powers of two, middle
/// ones (below 1 MiB) to eighths of their power of two, large ones to whole MiB, and those above 64 MiB
/// only to 16 bytes.
pub(super) fn size_class(size: u64) -> u64 {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match size {
        0..=256 => 256,
        _ if size <= 4 * KIB => size.next_power_of_two(),
        _ if size <= MIB => size.next_multiple_of(size.next_power_of_two() / 8),
        _ if size <= LARGEST_ROUNDED => size.next_multiple_of(MIB),
        _ => size.next_multiple_of(16),
    }
}

impl BufferPool {
    /// A pool whose buffers are forgotten by `bind_groups` when they are destroyed.
    pub fn new(raw: Rc<RawDevice>, bind_groups: Rc<BindGroups>) -> Self {
        Self { raw, bind_groups, state: RefCell::default() }
    }

    /// A buffer of `class` bytes: one that waits for reuse, or a new one.
    pub fn take(&self, class: u64, label: &str) -> Result<RawBuffer> {
        let mut state = self.state.borrow_mut();
        let found = state.take(class, self.raw.timeline.submitted());
        let excess = state.free.take_excess();
        let stats = state.stats.class(class);
        if found.is_some() {
            stats.hits += 1;
        } else {
            stats.misses += 1;
        }
        drop(state);
        self.retire(excess, true);
        if let Some(raw) = found {
            add(&self.raw.counters.buffers_reused, 1);
            return Ok(raw);
        }
        let created = self.create(class, label);
        if created.is_err() {
            self.state.borrow_mut().free.not_taken(class);
        }
        created
    }

    /// A new buffer.
    pub fn create(&self, size: u64, label: &str) -> Result<RawBuffer> {
        use wgpu::BufferUsages as Usage;
        let limit = self.raw.capabilities.max_buffer_size;
        if size > limit {
            bail!(
                AdapterLimits,
                "{label} needs a buffer of {size} bytes and this adapter allows {limit}; use a smaller model or context"
            );
        }
        let wgpu = self.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
            mapped_at_creation: false,
        });
        self.state.borrow_mut().stats.class(size).allocated_bytes += size;
        Ok(self.number(wgpu))
    }

    /// Gives a GPU buffer its id.
    pub fn number(&self, wgpu: wgpu::Buffer) -> RawBuffer {
        let mut state = self.state.borrow_mut();
        state.last_id += 1;
        RawBuffer { wgpu, id: state.last_id }
    }

    /// Takes a buffer of [`take`](Self::take) back after its last handle is gone.
    pub fn release(&self, raw: RawBuffer) {
        let is_disposed = self.raw.is_disposed();
        let mut state = self.state.borrow_mut();
        let submitted = self.raw.timeline.submitted();
        let size = raw.wgpu.size();
        let excess = if state.suspects.contains(raw.id) {
            state.free.not_taken(size);
            vec![raw]
        } else {
            state.free.put(size, raw, submitted);
            state.free.take_excess()
        };
        drop(state);
        self.retire(excess, true);
        if is_disposed {
            self.clear();
        }
    }

    /// The number of the last buffer that was made.
    pub fn last_id(&self) -> u64 {
        self.state.borrow().last_id
    }

    /// The buffers that were made after this one are not handed out until `decide`. Returns what that takes.
    pub fn hold_since(&self, id: u64) -> IdRange {
        let mut state = self.state.borrow_mut();
        let held = IdRange { after: id, last: state.last_id };
        state.undecided.push(held);
        held
    }

    /// It is known whether those that `hold_since` held work.
    pub fn decide(&self, held: IdRange) {
        self.state.borrow_mut().undecided.remove(held);
    }

    /// These buffers may not work: those that wait for reuse are destroyed, the others when they come back.
    pub fn forget(&self, suspects: IdRange) {
        let mut state = self.state.borrow_mut();
        state.suspects.push(suspects);
        let gone = state.free.remove_where(|raw| suspects.contains(raw.id));
        drop(state);
        self.retire(gone, false);
    }

    /// Waits for what went wrong since the last wait. After an error, what was made meanwhile is not used again.
    pub async fn take_fault(&self) -> Result<()> {
        let last = self.last_id();
        let waited = self.raw.take_fault().await;
        match &waited {
            Err(error) if error.code() == Code::OutOfMemory => {
                let after = self.state.borrow().trusted;
                self.forget(IdRange { after, last: self.last_id() });
            }
            _ => self.state.borrow_mut().trusted = last,
        }
        waited
    }

    /// Destroys a buffer that is not kept for reuse, after its last handle is gone.
    pub fn release_lasting(&self, raw: RawBuffer) {
        self.retire(vec![raw], false);
    }

    /// Takes back an arena's bank, which is not kept for reuse.
    pub fn release_bank(&self, raw: RawBuffer) {
        let arena = &self.raw.counters.arena_bytes;
        arena.set(arena.get() - raw.wgpu.size());
        self.retire(vec![raw], false);
    }

    /// A new buffer for an arena's tensors.
    pub fn create_bank(&self, size: u64) -> Result<RawBuffer> {
        let raw = self.create(size, "arena")?;
        add(&self.raw.counters.arena_bytes, raw.wgpu.size());
        Ok(raw)
    }

    /// Destroys buffers once nothing can use them any more, unless they are spare ones that are wanted before that. Without `destroy` a browser
    /// frees GPU memory only when its garbage collector runs.
    fn retire(&self, buffers: Vec<RawBuffer>, is_spare: bool) {
        if buffers.is_empty() {
            return;
        }
        if self.raw.is_disposed() {
            return self.destroy(buffers);
        }
        let last_use = self.raw.timeline.last_use();
        if last_use > self.raw.timeline.finished() {
            add(&self.raw.counters.deferred_frees, buffers.len() as u64);
        }
        let retired = buffers.into_iter().map(|raw| Retired { last_use, raw, is_spare });
        self.state.borrow_mut().retired.extend(retired);
        self.reap();
    }

    /// Whether buffers wait for the GPU to be done with them.
    pub fn has_retired(&self) -> bool {
        !self.state.borrow().retired.is_empty()
    }

    /// Destroys the retired buffers whose last submission is done.
    pub fn reap(&self) {
        let finished = self.raw.timeline.finished();
        let mut state = self.state.borrow_mut();
        let (done, retired): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.retired).into_iter().partition(|retired| retired.last_use <= finished);
        state.retired = retired;
        drop(state);
        self.destroy(done.into_iter().map(|retired| retired.raw).collect());
    }

    fn destroy(&self, buffers: Vec<RawBuffer>) {
        let gone: HashSet<u64> = buffers.iter().map(|raw| raw.id).collect();
        self.bind_groups.forget_buffers(&gone);
        for raw in buffers {
            let size = raw.wgpu.size();
            self.raw.counters.buffer_destroyed(size);
            self.state.borrow_mut().stats.class(size).released_bytes += size;
            raw.wgpu.destroy();
        }
    }

    /// Destroys all that no handle names, at the end of the device. WebGPU lets submissions that use them end first.
    pub fn clear(&self) {
        let mut state = self.state.borrow_mut();
        let mut buffers = state.free.shrink(0);
        buffers.extend(state.retired.drain(..).map(|retired| retired.raw));
        drop(state);
        self.destroy(buffers);
    }

    /// Frees buffers that wait for reuse, the largest first, until at most `bytes` are left.
    pub fn shrink(&self, bytes: u64) {
        let gone = self.state.borrow_mut().free.shrink(bytes);
        self.retire(gone, true);
    }

    /// How many buffers wait for reuse.
    pub fn free_buffers(&self) -> u64 {
        self.state.borrow().free.len() as u64
    }

    pub fn stats(&self) -> PoolStats {
        self.state.borrow().stats
    }

    /// Bytes that wait for reuse.
    pub fn free_bytes(&self) -> u64 {
        self.state.borrow().free.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::size_class;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_class_holds_its_sizes(size in 0u64..1 << 30) {
            let class = size_class(size);
            prop_assert!(class >= size);
            prop_assert_eq!(class % 16, 0);
            prop_assert_eq!(size_class(class), class, "a class is its own class, or buffers would never be found again");
            prop_assert!(class <= size.max(256) * 2, "at most twice the bytes");
        }
    }
}
