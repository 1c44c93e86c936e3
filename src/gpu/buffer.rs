//! Storage buffers: handles that return their GPU buffer to a pool when the last one goes.
//!
//! Invariants:
//! - The id names one GPU buffer for the device's whole life and is never given to another, so whatever is keyed by it
//!   (bind groups) can't be stale: a reused buffer keeps its id, a destroyed one takes its id with it.
//! - A handle may go while commands that use its buffer are recorded and not submitted. Reuse is safe, because commands run
//!   in program order; destruction waits for the next submit.

use std::collections::HashMap;
use std::rc::{Rc, Weak};

use super::Device;
use super::device::Inner;
use super::stats::add;
use crate::error::Result;

/// Offsets of bindings are multiples of this: the largest `minStorageBufferOffsetAlignment` that WebGPU allows, so that a
/// layout which works on one adapter works on all.
pub const BINDING_ALIGNMENT: u64 = 256;

/// Freed buffers above this many bytes are destroyed at once: they are weights and caches, which come back in the same
/// size only when a model is loaded again.
const LARGEST_POOLED: u64 = 16 << 20;

/// The most bytes that wait for reuse.
const POOL_BYTES: u64 = 64 << 20;

/// A storage buffer on the GPU. Cloning clones the handle.
#[derive(Clone)]
pub struct Buffer(Rc<Handle>);

struct Handle {
    raw: Option<RawBuffer>,
    device: Weak<Inner>,
}

#[derive(Clone)]
pub(super) struct RawBuffer {
    pub wgpu: wgpu::Buffer,
    pub id: u64,
}

impl Buffer {
    pub fn size(&self) -> u64 {
        self.raw().wgpu.size()
    }

    pub fn id(&self) -> u64 {
        self.raw().id
    }

    pub fn wgpu(&self) -> &wgpu::Buffer {
        &self.raw().wgpu
    }

    /// The whole buffer.
    pub fn slice(&self) -> BufferSlice {
        BufferSlice { buffer: self.clone(), offset: 0, size: self.size() }
    }

    fn raw(&self) -> &RawBuffer {
        match &self.0.raw {
            Some(raw) => raw,
            None => unreachable!("the buffer is taken out of its handle only when the handle is dropped"),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let (Some(raw), Some(device)) = (self.raw.take(), self.device.upgrade()) {
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
    /// Destroyed after the next submit, because recorded commands may name them.
    dying: Vec<RawBuffer>,
}

/// Sizes are rounded up so that close sizes share buffers: powers of two below 1 MiB, whole multiples of 1 MiB up to the
/// pool's limit, exact (to 16 bytes) above it.
fn size_class(size: u64) -> u64 {
    match size {
        0..=256 => 256,
        _ if size < 1 << 20 => size.next_power_of_two(),
        _ if size <= LARGEST_POOLED => size.next_multiple_of(1 << 20),
        _ => size.next_multiple_of(16),
    }
}

impl Device {
    /// A storage buffer of at least `size` bytes. Its contents are whatever was there: a new one is zeroed by WebGPU, a
    /// reused one is not.
    pub fn buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        let inner = self.inner();
        inner.check_usable()?;
        let limit = inner.capabilities.max_buffer_size;
        let class = size_class(size);
        if class > limit {
            bail!(
                AdapterLimits,
                "{label} needs a buffer of {class} bytes and this adapter allows {limit}; use a smaller model or context"
            );
        }
        let mut pool = inner.pool.borrow_mut();
        let reused = pool.free.get_mut(&class).and_then(Vec::pop);
        let raw = match reused {
            Some(raw) => {
                pool.free_bytes -= class;
                add(&inner.counters.buffers_reused, 1);
                raw
            }
            None => {
                use wgpu::BufferUsages as Usage;
                let wgpu = inner.wgpu.create_buffer(&wgpu::BufferDescriptor {
                    label: Some(label),
                    size: class,
                    usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
                    mapped_at_creation: false,
                });
                inner.counters.buffer_created(class);
                pool.next_id += 1;
                RawBuffer { wgpu, id: pool.next_id }
            }
        };
        Ok(Buffer(Rc::new(Handle { raw: Some(raw), device: Rc::downgrade(inner) })))
    }
}

impl Inner {
    fn release(&self, raw: RawBuffer) {
        let mut pool = self.pool.borrow_mut();
        let size = raw.wgpu.size();
        if size <= LARGEST_POOLED && pool.free_bytes + size <= POOL_BYTES {
            pool.free_bytes += size;
            pool.free.entry(size).or_default().push(raw);
        } else {
            pool.dying.push(raw);
            drop(pool);
            if self.recorder.borrow().is_empty() {
                self.destroy_dying();
            }
        }
    }

    /// Destroys what was freed; called when no recorded command can name it any more. Without `destroy` a browser frees
    /// GPU memory only when its garbage collector comes by.
    pub(super) fn destroy_dying(&self) {
        let dying = std::mem::take(&mut self.pool.borrow_mut().dying);
        for raw in dying {
            self.bind_groups.borrow_mut().forget_buffer(raw.id);
            self.counters.buffer_destroyed(raw.wgpu.size());
            raw.wgpu.destroy();
        }
    }

    /// Destroys the buffers that wait for reuse.
    pub(super) fn empty_pool(&self) {
        let mut pool = self.pool.borrow_mut();
        let free: Vec<RawBuffer> = pool.free.drain().flat_map(|(_, buffers)| buffers).collect();
        pool.free_bytes = 0;
        pool.dying.extend(free);
        drop(pool);
        if self.recorder.borrow().is_empty() {
            self.destroy_dying();
        }
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
