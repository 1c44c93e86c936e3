//! Uniform buffers, kept in a FIFO keyed by their exact content.
//!
//! Invariant: a uniform's buffer is written once, when it is made, and never again. So no step that is recorded or in
//! flight can see another content.

use std::rc::{Rc, Weak};

use super::Device;
use super::device::Inner;
use super::fifo::FifoCache;
use super::stats::{CacheStats, add};

/// Ids of uniforms start here, so that they never equal the id of a storage buffer.
const FIRST_ID: u64 = 1 << 63;

pub(super) struct Uniform {
    pub wgpu: wgpu::Buffer,
    pub id: u64,
    device: Weak<Inner>,
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

pub(super) struct UniformCache {
    entries: FifoCache<Vec<u8>, Uniform>,
    next_id: u64,
}

impl UniformCache {
    pub fn new(limit: usize) -> Self {
        Self { entries: FifoCache::new(limit), next_id: FIRST_ID }
    }

    pub fn stats(&self) -> CacheStats {
        self.entries.stats()
    }

    pub fn reset_stats(&mut self) {
        self.entries.reset_stats();
    }
}

impl Device {
    /// A uniform buffer with this content. Uniform blocks are padded to 16 bytes, as WGSL's layout rules want.
    pub(super) fn uniform(&self, content: &[u8]) -> Rc<Uniform> {
        let inner = self.inner();
        let mut cache = inner.uniforms.borrow_mut();
        let key = content.to_vec();
        if let Some(uniform) = cache.entries.get(&key) {
            return uniform;
        }
        let size = (content.len() as u64).next_multiple_of(16).max(16);
        let wgpu = inner.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("uniform"),
            size,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        inner.counters.buffer_created(size);
        let mut padded = key.clone();
        padded.resize(size as usize, 0);
        inner.queue.write_buffer(&wgpu, 0, &padded);
        add(&inner.counters.uniform_writes, 1);
        cache.next_id += 1;
        let uniform = Rc::new(Uniform { wgpu, id: cache.next_id, device: Rc::downgrade(inner) });
        let evicted = cache.entries.insert(key, uniform.clone(), size).iter().map(|uniform| uniform.id).collect();
        inner.bind_groups.borrow_mut().forget_buffers(&evicted);
        uniform
    }
}
