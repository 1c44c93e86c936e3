//! Uniform buffers, kept in a FIFO keyed by their exact content.
//!
//! Invariant: a uniform's buffer is not written again while anything holds the uniform: what is recorded, and bind groups. So a step always
//! sees the same content. What was evicted is written again for the next content, under another id; what was submitted before that has read
//! it, because the queue keeps its order.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::fifo::FifoCache;
use super::id_ranges::{IdRange, IdRanges};
use super::raw::RawDevice;
use super::stats::{CacheStats, add};

/// Ids of uniforms start here, so that they never equal the id of a storage buffer.
pub(super) const FIRST_ID: u64 = 1 << 63;

/// Bytes of a buffer are a multiple of this, so that most can be used again: at least the 16 that WGSL's layout rules want.
const GRAIN: u64 = 64;

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
    /// Those of steps of which it is not known yet whether there was room.
    undecided: RefCell<IdRanges>,
    /// How often memory had run out when the oldest entry was made.
    shortages: Cell<u64>,
}

impl Uniforms {
    /// Keeps at most `limit` uniforms; 0 keeps none.
    pub fn new(raw: Rc<RawDevice>, limit: usize) -> Self {
        Self {
            raw,
            entries: RefCell::new(FifoCache::new(limit)),
            last_id: Cell::new(FIRST_ID),
            undecided: RefCell::default(),
            shortages: Cell::new(0),
        }
    }

    pub fn clear(&self) {
        self.entries.borrow_mut().clear();
    }

    /// The id of the last one that was made.
    pub fn last_id(&self) -> u64 {
        self.last_id.get()
    }

    /// Those that were made after this one are not handed out until `decide`. Returns what that takes.
    pub fn hold_since(&self, id: u64) -> IdRange {
        let held = IdRange { after: id, last: self.last_id.get() };
        self.undecided.borrow_mut().push(held);
        held
    }

    /// It is known whether those that `hold_since` held work.
    pub fn decide(&self, held: IdRange) {
        self.undecided.borrow_mut().remove(held);
    }

    fn is_known(&self, uniform: &Uniform) -> bool {
        !self.undecided.borrow().contains(uniform.id)
    }

    /// Forgets these.
    pub fn forget(&self, ids: IdRange) {
        self.entries.borrow_mut().remove_values(|uniform| ids.contains(uniform.id));
    }

    pub fn stats(&self) -> CacheStats {
        self.entries.borrow().stats()
    }

    pub fn reset_stats(&self) {
        self.entries.borrow_mut().reset_stats();
    }

    /// A uniform buffer with this content.
    pub fn get(&self, content: &[u8]) -> Rc<Uniform> {
        let mut entries = self.entries.borrow_mut();
        // Some may be of when there was no room, and don't work.
        if self.shortages.replace(self.raw.shortages.get()) != self.raw.shortages.get() {
            entries.clear();
        }
        if let Some(uniform) = entries.get(content).filter(|uniform| self.is_known(uniform)) {
            return uniform;
        }
        let size = (content.len() as u64).next_multiple_of(GRAIN).max(GRAIN);
        self.last_id.set(self.last_id.get() + 1);
        let id = self.last_id.get();
        let evicted = entries.make_room().filter(|uniform| uniform.wgpu.size() == size && self.is_known(uniform));
        // Nobody else holds what was evicted.
        let again = evicted.and_then(|mut uniform| {
            Rc::get_mut(&mut uniform)?.id = id;
            Some(uniform)
        });
        let uniform = again.unwrap_or_else(|| self.create(id, size));
        let mut padded = content.to_vec();
        padded.resize(content.len().next_multiple_of(16), 0);
        self.raw.queue.write_buffer(&uniform.wgpu, 0, &padded);
        add(&self.raw.counters.uniform_writes, 1);
        entries.insert(Rc::from(content), uniform.clone(), size);
        uniform
    }

    fn create(&self, id: u64, size: u64) -> Rc<Uniform> {
        let wgpu = self.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("uniform"),
            size,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Rc::new(Uniform { wgpu, id, device: Rc::downgrade(&self.raw) })
    }
}
