//! The memory of storage buffers: GPU buffers that wait for reuse, by size, and those that the GPU still uses.
//!
//! Invariants:
//! - The id names one GPU buffer for the device's whole life and is never given to another, so what is keyed by it
//!   (bind groups) can't be stale: a reused buffer keeps its id, a destroyed one takes its id with it.
//! - A buffer may come back while commands that use it are recorded, or submitted and not done. Reuse is safe, because
//!   commands run in program order; destruction waits until the GPU has finished the submission.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::bind_groups::BindGroups;
use super::raw::RawDevice;
use super::stats::{PoolStats, add};
use crate::error::Result;

/// Freed buffers above this many bytes are destroyed: they are weights and caches, which come back in the same size only
/// when a model is loaded again.
const LARGEST_POOLED: u64 = 64 << 20;

/// The most bytes that wait for reuse.
const POOL_BYTES: u64 = 192 << 20;

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
    /// Buffers that wait for reuse, by size.
    free: HashMap<u64, Vec<RawBuffer>>,
    free_bytes: u64,
    last_id: u64,
    /// Freed, with the number of the submission after which nothing names them.
    retired: Vec<(u64, RawBuffer)>,
    stats: PoolStats,
}

/// Sizes are rounded up so that close sizes share buffers. Three classes: small ones (below 4 KiB) to powers of two, middle
/// ones (below 1 MiB) to eighths of their power of two, large ones to whole MiB up to the largest pooled size, and larger
/// ones only to 16 bytes.
pub(super) fn size_class(size: u64) -> u64 {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match size {
        0..=256 => 256,
        _ if size <= 4 * KIB => size.next_power_of_two(),
        _ if size <= MIB => size.next_multiple_of(size.next_power_of_two() / 8),
        _ if size <= LARGEST_POOLED => size.next_multiple_of(MIB),
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
        if let Some(raw) = state.free.get_mut(&class).and_then(Vec::pop) {
            state.free_bytes -= class;
            state.stats.class(class).hits += 1;
            add(&self.raw.counters.buffers_reused, 1);
            return Ok(raw);
        }
        state.stats.class(class).misses += 1;
        drop(state);
        self.create(class, label)
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
        let wgpu = self.raw.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
            mapped_at_creation: false,
        });
        self.raw.counters.buffer_created(size);
        self.state.borrow_mut().stats.class(size).allocated_bytes += size;
        Ok(self.number(wgpu))
    }

    /// Gives a GPU buffer its id.
    pub fn number(&self, wgpu: wgpu::Buffer) -> RawBuffer {
        let mut state = self.state.borrow_mut();
        state.last_id += 1;
        RawBuffer { wgpu, id: state.last_id }
    }

    /// Takes a buffer back after its last handle is gone.
    pub fn release(&self, raw: RawBuffer) {
        if self.raw.is_disposed() {
            return self.destroy(vec![raw]);
        }
        let mut state = self.state.borrow_mut();
        let size = raw.wgpu.size();
        let is_class = size_class(size) == size;
        if is_class && size <= LARGEST_POOLED && state.free_bytes + size <= POOL_BYTES {
            state.free_bytes += size;
            state.free.entry(size).or_default().push(raw);
        } else {
            drop(state);
            self.retire(raw);
        }
    }

    /// Takes back an arena's bank, which is not kept for reuse.
    pub fn release_bank(&self, raw: RawBuffer) {
        let arena = &self.raw.counters.arena_bytes;
        arena.set(arena.get() - raw.wgpu.size());
        self.retire(raw);
    }

    /// A new buffer for an arena's tensors.
    pub fn create_bank(&self, size: u64) -> Result<RawBuffer> {
        let raw = self.create(size, "arena")?;
        add(&self.raw.counters.arena_bytes, raw.wgpu.size());
        Ok(raw)
    }

    /// Destroys a buffer once nothing can use it any more. Without `destroy` a browser frees GPU memory only when its
    /// garbage collector runs.
    fn retire(&self, raw: RawBuffer) {
        if self.raw.is_disposed() {
            return self.destroy(vec![raw]);
        }
        let last_use = self.raw.timeline.last_use();
        if last_use > self.raw.timeline.finished() {
            add(&self.raw.counters.deferred_frees, 1);
        }
        self.state.borrow_mut().retired.push((last_use, raw));
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
            std::mem::take(&mut state.retired).into_iter().partition(|(last_use, _)| *last_use <= finished);
        state.retired = retired;
        drop(state);
        self.destroy(done.into_iter().map(|(_, raw)| raw).collect());
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
        state.free_bytes = 0;
        let State { free, retired, .. } = &mut *state;
        let buffers = free.drain().flat_map(|(_, buffers)| buffers).chain(retired.drain(..).map(|(_, raw)| raw));
        let buffers: Vec<RawBuffer> = buffers.collect();
        drop(state);
        self.destroy(buffers);
    }

    /// Frees buffers that wait for reuse, the largest first, until at most `bytes` are left.
    pub fn shrink(&self, bytes: u64) {
        let mut state = self.state.borrow_mut();
        let mut sizes: Vec<u64> = state.free.keys().copied().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut freed = Vec::new();
        for size in sizes {
            while state.free_bytes > bytes
                && let Some(raw) = state.free.get_mut(&size).and_then(Vec::pop)
            {
                state.free_bytes -= size;
                freed.push(raw);
            }
        }
        state.free.retain(|_, buffers| !buffers.is_empty());
        drop(state);
        for raw in freed {
            self.retire(raw);
        }
    }

    /// How many buffers wait for reuse.
    pub fn free_buffers(&self) -> u64 {
        self.state.borrow().free.values().map(|buffers| buffers.len() as u64).sum()
    }

    pub fn stats(&self) -> PoolStats {
        self.state.borrow().stats
    }

    /// Bytes that wait for reuse.
    pub fn free_bytes(&self) -> u64 {
        self.state.borrow().free_bytes
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
