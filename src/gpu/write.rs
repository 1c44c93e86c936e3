//! Writes from the CPU, in program order with what is recorded.
//!
//! `GPUQueue.writeBuffer` lands before everything in the next submit. So a write that comes after recorded commands can't go
//! to its target at once. A small one goes to a staging buffer instead, from which a recorded copy takes it to its target
//! when its turn comes; a large one submits what was recorded first.

use super::device::Inner;
use super::stats::{FlushReason, add};
use super::{Buffer, BufferSlice, Device};
use crate::error::Result;

/// The most bytes of a write that is staged.
const SMALL: usize = 4096;

/// Staged writes that are recorded before they are submitted.
const MAX_PENDING: usize = 64;

const RING_BYTES: u64 = (SMALL * MAX_PENDING) as u64;

/// The bytes of staged writes. They are uploaded together at the flush, each time from the start of the ring: the queue's order
/// puts the upload behind the last submit, which read the bytes before.
#[derive(Default)]
pub(super) struct StagedWrites {
    ring: Option<wgpu::Buffer>,
    bytes: Vec<u8>,
    pending: usize,
}

impl Device {
    /// Writes bytes to a buffer, after all commands recorded so far. Offset and length are multiples of 4.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let inner = self.inner();
        self.check_write(buffer, offset, bytes.len() as u64)?;
        if inner.recorder.borrow_mut().trace().is_some() {
            return Ok(());
        }
        add(&inner.counters.bytes_uploaded, bytes.len() as u64);
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() <= SMALL && !inner.recorder.borrow().is_empty() {
            return self.stage(buffer, offset, bytes);
        }
        // A write that goes to the queue must not overtake what is recorded.
        inner.flush(FlushReason::Write);
        inner.queue.write_buffer(buffer.wgpu()?, buffer.start() + offset, bytes);
        Ok(())
    }

    pub(super) fn check_write(&self, buffer: &Buffer, offset: u64, length: u64) -> Result<()> {
        let inner = self.inner();
        inner.check_usable()?;
        let slice = BufferSlice { buffer: buffer.clone(), offset, size: length };
        inner.check_slice("write", &slice)?;
        if !offset.is_multiple_of(4) || !length.is_multiple_of(4) {
            bail!(OutOfRange, "a write of {length} bytes at {offset}: both must be multiples of 4");
        }
        if inner.recorder.borrow().is_capturing() {
            bail!(Internal, "a step that is planned must not write: a replay would not repeat it");
        }
        Ok(())
    }

    fn stage(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let inner = self.inner();
        let is_full = {
            let staged = inner.staged_writes.borrow();
            staged.pending == MAX_PENDING || staged.bytes.len() + bytes.len() > RING_BYTES as usize
        };
        if is_full {
            inner.flush(FlushReason::PendingWrites);
            inner.queue.write_buffer(buffer.wgpu()?, buffer.start() + offset, bytes);
            return Ok(());
        }
        let mut staged = inner.staged_writes.borrow_mut();
        let ring = staged.ring.get_or_insert_with(|| inner.create_ring()).clone();
        let at = staged.bytes.len() as u64;
        staged.bytes.extend_from_slice(bytes);
        staged.pending += 1;
        drop(staged);
        add(&inner.counters.staged_writes, 1);
        self.record_raw_copy(&ring, at, buffer.wgpu()?, buffer.start() + offset, bytes.len() as u64);
        Ok(())
    }
}

impl Inner {
    fn create_ring(&self) -> wgpu::Buffer {
        self.counters.buffer_created(RING_BYTES);
        self.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("staged writes"),
            size: RING_BYTES,
            usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    pub(super) fn upload_staged_writes(&self) {
        let mut staged = self.staged_writes.borrow_mut();
        if staged.pending == 0 {
            return;
        }
        if let Some(ring) = &staged.ring {
            self.queue.write_buffer(ring, 0, &staged.bytes);
        }
        staged.bytes.clear();
        staged.pending = 0;
    }
}
