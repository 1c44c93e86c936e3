//! Reading buffers back: copies into staging buffers, mapped as soon as they are submitted.
//!
//! Several read-backs may be in flight; each has a staging buffer of its own until it is awaited or dropped. Those of up to
//! 256 bytes, such as a sampled token, have a pool of their own, so that many small ones in flight neither create buffers nor
//! push large ones out.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures_channel::oneshot;

use super::device::Inner;
use super::stats::{FlushReason, add};
use super::timeline::Report;
use super::{BufferSlice, Device};
use crate::error::Result;

const TINY: u64 = 256;

/// Tiny staging buffers kept for reuse.
const TINY_ENTRIES: usize = 32;

pub(super) struct StagingPool {
    free: Vec<wgpu::Buffer>,
    limit: usize,
    tiny: Vec<wgpu::Buffer>,
}

impl StagingPool {
    pub fn new(limit: usize) -> Self {
        Self { free: Vec::new(), limit, tiny: Vec::new() }
    }

    /// The smallest free buffer that holds `size` bytes.
    fn take(&mut self, size: u64) -> Option<wgpu::Buffer> {
        if size <= TINY {
            return self.tiny.pop();
        }
        let best =
            (0..self.free.len()).filter(|i| self.free[*i].size() >= size).min_by_key(|i| self.free[*i].size())?;
        Some(self.free.swap_remove(best))
    }

    /// Keeps a buffer; returns the one that is to go, the smallest, when there are too many.
    fn put(&mut self, buffer: wgpu::Buffer) -> Option<wgpu::Buffer> {
        if buffer.size() <= TINY {
            self.tiny.push(buffer);
            return if self.tiny.len() > TINY_ENTRIES { self.tiny.pop() } else { None };
        }
        self.free.push(buffer);
        if self.free.len() <= self.limit {
            return None;
        }
        let smallest = (0..self.free.len()).min_by_key(|i| self.free[*i].size())?;
        Some(self.free.swap_remove(smallest))
    }

    pub fn drain(&mut self) -> Vec<wgpu::Buffer> {
        self.tiny.drain(..).chain(self.free.drain(..)).collect()
    }
}

/// A read-back that is on its way.
pub struct Readback {
    device: Device,
    staging: Option<wgpu::Buffer>,
    /// Byte ranges of the parts in the staging buffer.
    parts: Vec<(usize, usize)>,
    length: u64,
    mapped: oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>,
    told: Told,
}

/// Who is told when the mapping comes; taken by whoever learns of it first. Natively the callback may run on another thread.
type Told = Arc<Mutex<Option<(oneshot::Sender<Result<(), wgpu::BufferAsyncError>>, Report)>>>;

impl Device {
    /// Starts reading these slices: one staging buffer, one submit together with all that was recorded, one map. Offsets
    /// must be multiples of 4; lengths may be anything.
    pub fn read(&self, slices: &[BufferSlice]) -> Result<Readback> {
        let inner = self.inner();
        inner.check_usable()?;
        if inner.recorder.borrow_mut().trace().is_some() || inner.recorder.borrow().is_capturing() {
            bail!(Internal, "a step that is planned must not read");
        }
        let mut parts = Vec::with_capacity(slices.len());
        let mut total = 0u64;
        for slice in slices {
            inner.check_slice("read-back", slice)?;
            if !slice.offset.is_multiple_of(4) {
                bail!(OutOfRange, "a read-back from byte {}: it must begin at a multiple of 4", slice.offset);
            }
            parts.push((total as usize, slice.size as usize));
            total += slice.size.next_multiple_of(4);
        }
        let staging = inner.staging(total);
        for (slice, (offset, _)) in slices.iter().zip(&parts) {
            if slice.size > 0 {
                // Buffers are multiples of 4 bytes long, so the padding is there.
                let padded = BufferSlice { size: slice.size.next_multiple_of(4), ..slice.clone() };
                self.record_copy(&padded, &staging, *offset as u64)?;
            }
        }
        inner.flush(FlushReason::Readback);
        let report = inner.timeline.reported_by_readback();
        let (sender, mapped) = oneshot::channel();
        let told: Told = Arc::new(Mutex::new(Some((sender, report))));
        let teller = told.clone();
        let length = total.max(4);
        staging.slice(..length).map_async(wgpu::MapMode::Read, move |result| {
            if let Some((sender, report)) = teller.lock().ok().and_then(|mut told| told.take()) {
                report.done(result.is_ok());
                // Nobody waits when the read-back was dropped.
                let _ = sender.send(result);
            }
        });
        add(&inner.counters.maps, 1);
        add(&inner.counters.bytes_read_back, total);
        Ok(Readback { device: self.clone(), staging: Some(staging), parts, length, mapped, told })
    }

    /// Submits what was recorded and waits until the GPU has done it. Reports the first error since the last wait.
    ///
    /// When the last thing submitted was a read-back, its mapping is the wait, and nothing more is asked of the GPU.
    pub async fn sync(&self) -> Result<()> {
        let inner = self.inner().clone();
        inner.check_usable()?;
        inner.flush(FlushReason::Sync);
        add(&inner.counters.syncs, 1);
        let is_done = if inner.timeline.finished() == inner.timeline.submitted() {
            add(&inner.counters.syncs_without_wait, 1);
            true
        } else if let Some(mapped) = inner.timeline.wait_for_readback() {
            inner.drive();
            let is_done = mapped.await == Ok(true);
            add(&inner.counters.syncs_without_wait, u64::from(is_done));
            is_done
        } else {
            false
        };
        // A read-back that was dropped tells nothing.
        let is_done = is_done || inner.work_done().await;
        inner.take_fault().await?;
        if !is_done {
            bail!(DeviceLost, "the GPU device went away during a wait");
        }
        inner.reap();
        Ok(())
    }
}

impl Readback {
    /// Waits for the bytes, one vector per slice.
    pub async fn bytes(mut self) -> Result<Vec<Vec<u8>>> {
        let inner = self.device.inner().clone();
        inner.drive();
        let mapped = (&mut self.mapped).await;
        inner.take_fault().await?;
        let Some(staging) = self.staging.take() else { bail!(Internal, "a read-back was awaited twice") };
        if !matches!(mapped, Ok(Ok(()))) {
            bail!(DeviceLost, "the GPU device went away while a result was read back");
        }
        let view = match staging.slice(..self.length).get_mapped_range() {
            Ok(view) => view,
            Err(error) => bail!(Internal, "a staging buffer could not be read: {error}"),
        };
        let parts = self.parts.iter().map(|(offset, size)| view[*offset..offset + size].to_vec()).collect();
        drop(view);
        staging.unmap();
        inner.return_staging(staging);
        if inner.has_retired() {
            inner.reap();
        }
        Ok(parts)
    }
}

impl Drop for Readback {
    fn drop(&mut self) {
        // Not awaited, so still mapped or about to be: not fit for reuse.
        if let Some(staging) = self.staging.take() {
            // A mapping that is cancelled may never call back.
            if let Some((_, report)) = self.told.lock().ok().and_then(|mut told| told.take()) {
                report.done(false);
            }
            self.device.inner().counters.buffer_destroyed(staging.size());
            staging.destroy();
        }
    }
}

impl Inner {
    fn staging(self: &Rc<Self>, size: u64) -> wgpu::Buffer {
        let size = size.max(TINY).next_power_of_two();
        if let Some(buffer) = self.staging.borrow_mut().take(size) {
            return buffer;
        }
        self.counters.buffer_created(size);
        self.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    fn return_staging(&self, buffer: wgpu::Buffer) {
        if let Some(extra) = self.staging.borrow_mut().put(buffer) {
            self.counters.buffer_destroyed(extra.size());
            extra.destroy();
        }
    }

    /// Waits until all submitted work is done; false when the device went away meanwhile.
    pub(super) async fn work_done(&self) -> bool {
        let (sender, done) = oneshot::channel();
        let report = self.timeline.report();
        self.queue.on_submitted_work_done(move || {
            report.done(true);
            let _ = sender.send(());
        });
        self.drive();
        done.await.is_ok()
    }

    /// Has the timeline told when what is submitted is done, without waiting for it.
    pub(super) fn report_when_done(&self) {
        let report = self.timeline.report();
        self.queue.on_submitted_work_done(move || report.done(true));
        self.poke();
    }

    fn drive(&self) {
        super::device::wait_for_callbacks(&self.wgpu);
    }

    /// Lets callbacks run that are due.
    #[cfg(not(target_arch = "wasm32"))]
    fn poke(&self) {
        let _ = self.wgpu.poll(wgpu::PollType::Poll);
    }

    #[cfg(target_arch = "wasm32")]
    fn poke(&self) {}
}
