//! Uniform buffers, kept in a FIFO keyed by their exact content.
//!
//! Invariant: a uniform's buffer is written once, when it is made, and never again. So a step that is recorded or in flight
//! always sees the same content.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::fifo::FifoCache;
use super::raw::RawDevice;
use super::stats::{CacheStats, add};

/// Ids of uniforms start here, so that they never equal the id of a storage buffer.
const FIRST_ID: u64 = 1 << 63;

pub(super) struct Uniform {
    pub wgpu: wgpu::Buffer,
    pub id: u64,
    device: Weak<RawDevice>,
}

impl Drop for Uniform {
    fn drop(&mut self) {
        // Bind groups hold the uniforms that they use, so nothing recorded names this one; what is submitted may.
        if let Some(device) = self.device.upgrade() {
            device.counters.buffer_destroyed(self.wgpu.size());
        }
        self.wgpu.destroy();
    }
}

pub(super) struct Uniforms {
    raw: Rc<RawDevice>,
    entries: RefCell<FifoCache<[u8], Uniform>>,
    last_id: Cell<u64>,
}

impl Uniforms {
    /// Keeps at most `limit` uniforms; 0 keeps none.
    pub fn new(raw: Rc<RawDevice>, limit: usize) -> Self {
        Self { raw, entries: RefCell::new(FifoCache::new(limit)), last_id: Cell::new(FIRST_ID) }
    }

    pub fn clear(&self) {
        self.entries.borrow_mut().clear();
    }

    pub fn stats(&self) -> CacheStats {
        self.entries.borrow().stats()
    }

    pub fn reset_stats(&self) {
        self.entries.borrow_mut().reset_stats();
    }

    /// A uniform buffer with this content. Uniform blocks are padded to 16 bytes, as WGSL's layout rules require.
    pub fn get(&self, content: &[u8]) -> Rc<Uniform> {
        let mut entries = self.entries.borrow_mut();
        if let Some(uniform) = entries.get(content) {
            return uniform;
        }
        let size = (content.len() as u64).next_multiple_of(16).max(16);
        let wgpu = self.raw.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("uniform"),
            size,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.raw.counters.buffer_created(size);
        let mut padded = content.to_vec();
        padded.resize(size as usize, 0);
        self.raw.queue.write_buffer(&wgpu, 0, &padded);
        add(&self.raw.counters.uniform_writes, 1);
        self.last_id.set(self.last_id.get() + 1);
        let uniform = Rc::new(Uniform { wgpu, id: self.last_id.get(), device: Rc::downgrade(&self.raw) });
        // What is evicted for it is in no bind group, since these hold their uniforms.
        entries.insert(Rc::from(content), uniform.clone(), size);
        uniform
    }
}
