//! Storage buffers: handles that return their GPU buffer to a pool when the last one goes.
//!
//! Invariants:
//! - The id names one GPU buffer for the device's whole life and is never given to another, so whatever is keyed by it
//!   (bind groups) can't be stale: a reused buffer keeps its id, a destroyed one takes its id with it.
//! - A handle may go while commands that use its buffer are recorded, or submitted and not done. Reuse is safe, because
//!   commands run in program order; destruction waits until the GPU has finished the submission.

use std::collections::{HashMap, HashSet};
use std::rc::{Rc, Weak};

use super::Device;
use super::device::Inner;
use super::stats::add;
use crate::error::Result;

/// Offsets of bindings are multiples of this: the largest `minStorageBufferOffsetAlignment` that WebGPU allows, so that a
/// layout which works on one adapter works on all.
pub const BINDING_ALIGNMENT: u64 = 256;

/// Freed buffers above this many bytes are destroyed: they are weights and caches, which come back in the same size only
/// when a model is loaded again.
const LARGEST_POOLED: u64 = 64 << 20;

/// The most bytes that wait for reuse.
const POOL_BYTES: u64 = 192 << 20;

/// A storage buffer on the GPU. Cloning clones the handle.
#[derive(Clone)]
pub struct Buffer(Rc<Handle>);

struct Handle {
    place: Place,
    size: u64,
    device: Weak<Inner>,
}

/// What stands behind a handle.
enum Place {
    /// A buffer from the pool, which goes back there. `None` only while the handle is dropped.
    Own(Option<RawBuffer>),
    /// A part of a plan's arena.
    Slot { bank: Rc<Bank>, offset: u64 },
    /// A buffer of the application, which is never destroyed here.
    Foreign(RawBuffer),
    /// No memory: the step is only traced. The number counts the allocations of the trace.
    Traced(usize),
}

#[derive(Clone)]
pub(super) struct RawBuffer {
    pub wgpu: wgpu::Buffer,
    pub id: u64,
}

/// A buffer that an arena's tensors lie in; destroyed when the plan goes.
pub(super) struct Bank {
    raw: RawBuffer,
    device: Weak<Inner>,
}

impl Drop for Bank {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            let arena = &device.counters.arena_bytes;
            arena.set(arena.get() - self.raw.wgpu.size());
            device.retire(self.raw.clone());
        }
    }
}

impl Buffer {
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Which GPU buffer it is; several buffers of an arena share one.
    pub(super) fn id(&self) -> Option<u64> {
        self.raw().map(|raw| raw.id)
    }

    /// Where its bytes begin in the GPU buffer.
    pub(super) fn start(&self) -> u64 {
        match &self.0.place {
            Place::Slot { offset, .. } => *offset,
            _ => 0,
        }
    }

    /// The GPU buffer; none while a step is only traced.
    pub(super) fn raw(&self) -> Option<&RawBuffer> {
        match &self.0.place {
            Place::Own(raw) => raw.as_ref(),
            Place::Slot { bank, .. } => Some(&bank.raw),
            Place::Foreign(raw) => Some(raw),
            Place::Traced(_) => None,
        }
    }

    pub(super) fn wgpu(&self) -> Result<&wgpu::Buffer> {
        match self.raw() {
            Some(raw) => Ok(&raw.wgpu),
            None => bail!(Internal, "a buffer of a traced step has no memory"),
        }
    }

    /// Not so for one that a step makes while it is only traced.
    pub fn has_memory(&self) -> bool {
        self.traced().is_none()
    }

    pub(super) fn traced(&self) -> Option<usize> {
        match self.0.place {
            Place::Traced(number) => Some(number),
            _ => None,
        }
    }

    /// Whether somebody besides `self` holds the buffer.
    pub(super) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    pub(super) fn belongs_to(&self, device: &Rc<Inner>) -> bool {
        std::ptr::eq(self.0.device.as_ptr(), Rc::as_ptr(device))
    }

    /// The whole buffer.
    pub fn slice(&self) -> BufferSlice {
        BufferSlice { buffer: self.clone(), offset: 0, size: self.size() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let (Place::Own(raw), Some(device)) = (&mut self.place, self.device.upgrade())
            && let Some(raw) = raw.take()
        {
            device.release(raw);
        }
    }
}

/// A range of a buffer, in bytes.
#[derive(Clone)]
pub struct BufferSlice {
    pub buffer: Buffer,
    pub offset: u64,
    pub size: u64,
}

/// Buffers that wait for reuse, by size.
#[derive(Default)]
pub(super) struct BufferPool {
    free: HashMap<u64, Vec<RawBuffer>>,
    free_bytes: u64,
    next_id: u64,
    /// Freed, with the number of the submission after which nothing names them.
    retired: Vec<(u64, RawBuffer)>,
}

/// Sizes are rounded up so that close sizes share buffers. Three classes: small ones (below 4 KiB) to powers of two, middle
/// ones (below 1 MiB) to eighths of their power of two, large ones to whole MiB up to what is pooled, and beyond that not
/// at all (but to 16 bytes).
fn size_class(size: u64) -> u64 {
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

impl Device {
    /// A storage buffer of at least `size` bytes. Its contents are whatever was there: a new one is zeroed by WebGPU, a
    /// reused one is not.
    pub fn buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        self.buffer_of_class(size, size_class(size), label)
    }

    /// A storage buffer for what stays as long as a model does: no larger than it has to be, and not kept for reuse.
    pub fn lasting_buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        self.buffer_of_class(size, size.next_multiple_of(16), label)
    }

    fn buffer_of_class(&self, size: u64, class: u64, label: &str) -> Result<Buffer> {
        let inner = self.inner();
        inner.check_usable()?;
        let handle = |place, size| Buffer(Rc::new(Handle { place, size, device: Rc::downgrade(inner) }));
        let mut recorder = inner.recorder.borrow_mut();
        if let Some(trace) = recorder.trace() {
            let buffer = handle(Place::Traced(trace.allocations.len()), size);
            trace.allocations.push(buffer.clone());
            return Ok(buffer);
        }
        if let Some(arena) = recorder.arena() {
            let slot = arena.next(size)?;
            return Ok(handle(Place::Slot { bank: arena.banks[slot.bank].clone(), offset: slot.offset }, size));
        }
        drop(recorder);
        let mut pool = inner.pool.borrow_mut();
        let reused = pool.free.get_mut(&class).and_then(Vec::pop);
        let raw = match reused {
            Some(raw) => {
                pool.free_bytes -= class;
                add(&inner.counters.buffers_reused, 1);
                raw
            }
            None => inner.create(&mut pool, class, label)?,
        };
        Ok(handle(Place::Own(Some(raw)), class))
    }

    /// Buffers for the banks of an arena.
    pub(super) fn banks(&self, sizes: &[u64]) -> Result<Vec<Rc<Bank>>> {
        let inner = self.inner();
        let mut banks = Vec::with_capacity(sizes.len());
        for size in sizes {
            let raw = inner.create(&mut inner.pool.borrow_mut(), *size, "arena")?;
            add(&inner.counters.arena_bytes, raw.wgpu.size());
            banks.push(Rc::new(Bank { raw, device: Rc::downgrade(inner) }));
        }
        Ok(banks)
    }

    /// A buffer that the application owns.
    #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "only a browser's application hands one in"))]
    pub(super) fn foreign(&self, wgpu: wgpu::Buffer) -> Buffer {
        let inner = self.inner();
        let size = wgpu.size();
        let mut pool = inner.pool.borrow_mut();
        pool.next_id += 1;
        let place = Place::Foreign(RawBuffer { wgpu, id: pool.next_id });
        Buffer(Rc::new(Handle { place, size, device: Rc::downgrade(inner) }))
    }
}

impl Inner {
    fn create(&self, pool: &mut BufferPool, size: u64, label: &str) -> Result<RawBuffer> {
        use wgpu::BufferUsages as Usage;
        let limit = self.capabilities.max_buffer_size;
        if size > limit {
            bail!(
                AdapterLimits,
                "{label} needs a buffer of {size} bytes and this adapter allows {limit}; use a smaller model or context"
            );
        }
        let wgpu = self.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
            mapped_at_creation: false,
        });
        self.counters.buffer_created(size);
        pool.next_id += 1;
        Ok(RawBuffer { wgpu, id: pool.next_id })
    }

    fn release(&self, raw: RawBuffer) {
        let mut pool = self.pool.borrow_mut();
        let size = raw.wgpu.size();
        let is_class = size_class(size) == size;
        if is_class && size <= LARGEST_POOLED && pool.free_bytes + size <= POOL_BYTES {
            pool.free_bytes += size;
            pool.free.entry(size).or_default().push(raw);
        } else {
            drop(pool);
            self.retire(raw);
        }
    }

    /// Destroys a buffer once nothing can use it any more. Without `destroy` a browser frees GPU memory only when its
    /// garbage collector comes by.
    fn retire(&self, raw: RawBuffer) {
        let open = u64::from(!self.recorder.borrow().is_empty());
        let last_use = self.timeline.submitted() + open;
        if last_use > self.timeline.finished() {
            add(&self.counters.deferred_frees, 1);
        }
        self.pool.borrow_mut().retired.push((last_use, raw));
        self.reap();
    }

    /// Whether buffers wait for the GPU to be done with them.
    pub(super) fn has_retired(&self) -> bool {
        !self.pool.borrow().retired.is_empty()
    }

    /// Destroys the retired buffers whose last submission is done.
    pub(super) fn reap(&self) {
        let finished = self.timeline.finished();
        let mut pool = self.pool.borrow_mut();
        let (done, retired): (Vec<_>, Vec<_>) =
            std::mem::take(&mut pool.retired).into_iter().partition(|(last_use, _)| *last_use <= finished);
        pool.retired = retired;
        drop(pool);
        let gone: HashSet<u64> = done.iter().map(|(_, raw)| raw.id).collect();
        self.bind_groups.borrow_mut().forget_buffers(&gone);
        for (_, raw) in done {
            self.counters.buffer_destroyed(raw.wgpu.size());
            raw.wgpu.destroy();
        }
    }

    /// Frees buffers that wait for reuse, the largest first, until these are no more than `bytes`.
    pub(super) fn shrink_pool(&self, bytes: u64) {
        let mut pool = self.pool.borrow_mut();
        let mut sizes: Vec<u64> = pool.free.keys().copied().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut freed = Vec::new();
        for size in sizes {
            while pool.free_bytes > bytes
                && let Some(raw) = pool.free.get_mut(&size).and_then(Vec::pop)
            {
                pool.free_bytes -= size;
                freed.push(raw);
            }
        }
        pool.free.retain(|_, buffers| !buffers.is_empty());
        drop(pool);
        for raw in freed {
            self.retire(raw);
        }
    }

    pub(super) fn pooled_bytes(&self) -> u64 {
        self.pool.borrow().free_bytes
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
