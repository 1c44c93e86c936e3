//! Storage buffers: handles that return their GPU buffer to the pool when the last one goes. A handle may go while commands
//! that use its buffer are recorded, or submitted and not done (`pool.rs`).

use std::rc::{Rc, Weak};

use super::pool::{BufferPool, RawBuffer, size_class};
use crate::error::Result;

/// Offsets of bindings are multiples of this: the largest `minStorageBufferOffsetAlignment` that WebGPU allows, so that a
/// layout which works on one adapter works on all.
pub const BINDING_ALIGNMENT: u64 = 256;

/// A storage buffer on the GPU. Cloning clones the handle.
#[derive(Clone)]
pub struct Buffer(Rc<Handle>);

struct Handle {
    place: Place,
    size: u64,
    pool: Weak<BufferPool>,
}

/// What a handle refers to.
enum Place {
    /// A buffer from the pool, which goes back there. `None` only while the handle is dropped.
    Pooled(Option<RawBuffer>),
    /// A buffer that is not kept for reuse. `None` only while the handle is dropped.
    Lasting(Option<RawBuffer>),
    /// A part of a plan's arena.
    Slot { bank: Rc<Bank>, offset: u64 },
    /// A buffer of the application, which is never destroyed here.
    Foreign(RawBuffer),
    /// No memory: the step is only traced. The number counts the allocations of the trace.
    Traced(usize),
}

/// A buffer that an arena's tensors lie in; destroyed when the plan goes.
pub(super) struct Bank {
    raw: RawBuffer,
    pool: Weak<BufferPool>,
}

impl Bank {
    pub fn new(pool: &Rc<BufferPool>, size: u64) -> Result<Self> {
        Ok(Self { raw: pool.create_bank(size)?, pool: Rc::downgrade(pool) })
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.release_bank(self.raw.clone());
        }
    }
}

impl Buffer {
    fn new(place: Place, size: u64, pool: Weak<BufferPool>) -> Self {
        Buffer(Rc::new(Handle { place, size, pool }))
    }

    /// At least `size` bytes, of the size class, so that it can be reused.
    pub(super) fn pooled(pool: &Rc<BufferPool>, size: u64, label: &str) -> Result<Self> {
        let class = size_class(size);
        Ok(Self::new(Place::Pooled(Some(pool.take(class, label)?)), class, Rc::downgrade(pool)))
    }

    /// Of `size` bytes, not rounded up to a size class, and so not kept for reuse.
    pub(super) fn lasting(pool: &Rc<BufferPool>, size: u64, label: &str) -> Result<Self> {
        let size = size.next_multiple_of(16);
        Ok(Self::new(Place::Lasting(Some(pool.create(size, label)?)), size, Rc::downgrade(pool)))
    }

    /// Without memory: the allocation `number` of a trace.
    pub(super) fn in_trace(pool: &Rc<BufferPool>, number: usize, size: u64) -> Self {
        Self::new(Place::Traced(number), size, Rc::downgrade(pool))
    }

    /// A part of an arena.
    pub(super) fn in_bank(bank: Rc<Bank>, offset: u64, size: u64) -> Self {
        let pool = bank.pool.clone();
        Self::new(Place::Slot { bank, offset }, size, pool)
    }

    /// A buffer that the application owns.
    #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "only a browser's application hands one in"))]
    pub(super) fn foreign(pool: &Rc<BufferPool>, wgpu: wgpu::Buffer) -> Self {
        let size = wgpu.size();
        Self::new(Place::Foreign(pool.number(wgpu)), size, Rc::downgrade(pool))
    }

    /// Its length in bytes, which may be more than was asked for.
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
            Place::Pooled(raw) | Place::Lasting(raw) => raw.as_ref(),
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

    /// An error if the application made its buffer without a usage. Those of the device have all that it needs.
    pub(super) fn check_usage(&self, what: &str, usage: wgpu::BufferUsages) -> Result<()> {
        if let Place::Foreign(raw) = &self.0.place
            && !raw.wgpu.usage().contains(usage)
        {
            bail!(InvalidRequest, "{what}: the imported buffer lacks the usage {usage:?}; create it with that");
        }
        Ok(())
    }

    /// Whether it has memory. A buffer that a step makes while it is only traced has none.
    pub fn has_memory(&self) -> bool {
        self.traced().is_none()
    }

    pub(super) fn traced(&self) -> Option<usize> {
        match self.0.place {
            Place::Traced(number) => Some(number),
            _ => None,
        }
    }

    /// Whether another handle of the buffer exists.
    pub(super) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    fn belongs_to(&self, pool: &Rc<BufferPool>) -> bool {
        std::ptr::eq(self.0.pool.as_ptr(), Rc::as_ptr(pool))
    }

    /// The whole buffer.
    pub fn slice(&self) -> BufferSlice {
        BufferSlice { buffer: self.clone(), offset: 0, size: self.size() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        match &mut self.place {
            Place::Pooled(raw) => raw.take().into_iter().for_each(|raw| pool.release(raw)),
            Place::Lasting(raw) => raw.take().into_iter().for_each(|raw| pool.release_lasting(raw)),
            Place::Slot { .. } | Place::Foreign(_) | Place::Traced(_) => {}
        }
    }
}

/// A range of a buffer, in bytes.
#[derive(Clone)]
pub struct BufferSlice {
    /// The buffer that it is a part of.
    pub buffer: Buffer,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub size: u64,
}

impl BufferSlice {
    /// An error if the slice belongs to another device than `pool`'s, or reaches past the end of its buffer.
    pub(super) fn check(&self, what: &str, pool: &Rc<BufferPool>) -> Result<()> {
        if !self.buffer.belongs_to(pool) {
            bail!(WrongDevice, "{what}: the buffer was made on another device");
        }
        let size = self.buffer.size();
        if self.offset.checked_add(self.size).is_none_or(|end| end > size) {
            bail!(OutOfRange, "{what}: {} bytes at {} of a buffer of {size}", self.size, self.offset);
        }
        Ok(())
    }
}
