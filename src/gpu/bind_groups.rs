//! Bind groups, kept in a FIFO keyed by layout and by buffer ids, offsets and sizes. It holds ids and no buffers, so the pool
//! can drop a destroyed buffer's entries here.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use super::fifo::FifoCache;
use super::id_ranges::IdRange;
use super::stats::CacheStats;
use super::uniform::Uniform;

/// A bind group and the uniforms in it, which stay as long as it does.
pub(super) struct BindGroup {
    pub wgpu: wgpu::BindGroup,
    /// Bytes of the slices bound for reading only.
    pub read_bytes: u64,
    pub _uniforms: Vec<Rc<Uniform>>,
}

#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub layout: u64,
    /// Binding number, id (buffers and uniforms count in different ranges: see `uniform.rs`), offset, size.
    pub entries: Vec<(u32, u64, u64, u64)>,
}

pub(super) struct BindGroups(RefCell<FifoCache<Key, BindGroup>>);

impl BindGroups {
    /// At most `limit` groups; 0 keeps none.
    pub fn new(limit: usize) -> Self {
        Self(RefCell::new(FifoCache::new(limit)))
    }

    pub fn get(&self, key: &Key) -> Option<Rc<BindGroup>> {
        self.0.borrow_mut().get(key)
    }

    pub fn insert(&self, key: Key, group: Rc<BindGroup>) {
        self.0.borrow_mut().insert(Rc::new(key), group, 0);
    }

    /// Drops the bind groups that name one of these buffers. One call for many, because it looks at every entry.
    pub fn forget_buffers(&self, ids: &HashSet<u64>) {
        if !ids.is_empty() {
            self.0.borrow_mut().remove_where(|key| key.entries.iter().any(|entry| ids.contains(&entry.1)));
        }
    }

    /// Drops the bind groups that name one of these buffers or uniforms.
    pub fn forget_made(&self, buffers: IdRange, uniforms: IdRange) {
        let is_of_them = |id: u64| buffers.contains(id) || uniforms.contains(id);
        self.0.borrow_mut().remove_where(|key| key.entries.iter().any(|entry| is_of_them(entry.1)));
    }

    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    pub fn stats(&self) -> CacheStats {
        self.0.borrow().stats()
    }

    pub fn reset_stats(&self) {
        self.0.borrow_mut().reset_stats();
    }
}
