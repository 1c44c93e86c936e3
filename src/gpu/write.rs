//! Writes from the CPU, in program order with what is recorded.
//!
//! `GPUQueue.writeBuffer` lands before everything in the next submit. So a write that comes after recorded commands can't go
//! to its target at once. A small one goes to a staging buffer instead, from which a recorded copy takes it to its target
//! when its turn comes; a large one submits what was recorded first.

use std::cell::RefCell;

use super::raw::RawDevice;
use super::stats::add;

/// The most bytes of a write that is staged.
pub(super) const SMALL: usize = 4096;

/// Staged writes that are recorded before they are submitted.
const MAX_PENDING: usize = 64;

const RING_BYTES: u64 = (SMALL * MAX_PENDING) as u64;

/// The bytes of staged writes. They are uploaded together at the flush, each time from the start of the ring: the queue's order
/// puts the upload after the last submit, which read the bytes before.
#[derive(Default)]
pub(super) struct StagedWrites(RefCell<State>);

#[derive(Default)]
struct State {
    ring: Option<wgpu::Buffer>,
    bytes: Vec<u8>,
    pending: usize,
    /// It is not known whether the ring works.
    is_held: bool,
}

impl StagedWrites {
    /// Keeps a small write. Returns the buffer and the offset to copy it from, or `None` if it does not fit any more or the ring is held.
    pub fn stage(&self, raw: &RawDevice, bytes: &[u8]) -> Option<(wgpu::Buffer, u64)> {
        let mut state = self.0.borrow_mut();
        if state.is_held || state.pending == MAX_PENDING || state.bytes.len() + bytes.len() > RING_BYTES as usize {
            return None;
        }
        let ring = state.ring.get_or_insert_with(|| create_ring(raw)).clone();
        let at = state.bytes.len() as u64;
        state.bytes.extend_from_slice(bytes);
        state.pending += 1;
        add(&raw.counters.staged_writes, 1);
        Some((ring, at))
    }

    /// Whether the ring was made.
    pub fn has_ring(&self) -> bool {
        self.0.borrow().ring.is_some()
    }

    /// Whether the ring takes no writes.
    pub fn hold(&self, is_held: bool) {
        self.0.borrow_mut().is_held = is_held;
    }

    /// Frees the ring, and forgets what was not uploaded.
    pub fn clear(&self, raw: &RawDevice) {
        if let Some(ring) = self.0.take().ring {
            raw.counters.buffer_destroyed(RING_BYTES);
            ring.destroy();
        }
    }

    /// Takes what was staged, for a submit that comes later: the ring, and the bytes at its start.
    pub fn take(&self) -> Option<(wgpu::Buffer, Vec<u8>)> {
        let mut state = self.0.borrow_mut();
        let ring = state.ring.clone().filter(|_| state.pending > 0)?;
        state.pending = 0;
        Some((ring, std::mem::take(&mut state.bytes)))
    }

    /// Uploads what was staged, for the submit that follows.
    pub fn upload(&self, queue: &wgpu::Queue) {
        let mut state = self.0.borrow_mut();
        if state.pending == 0 {
            return;
        }
        if let Some(ring) = &state.ring {
            queue.write_buffer(ring, 0, &state.bytes);
        }
        state.bytes.clear();
        state.pending = 0;
    }
}

fn create_ring(raw: &RawDevice) -> wgpu::Buffer {
    raw.create_buffer(&wgpu::BufferDescriptor {
        label: Some("staged writes"),
        size: RING_BYTES,
        usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}
