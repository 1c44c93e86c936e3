//! Reading buffers back: copies into staging buffers, mapped as soon as they are submitted.
//!
//! Several read-backs may be in flight; each has a staging buffer of its own until it is awaited or dropped.

use std::cell::RefCell;
use std::rc::Rc;

use futures_channel::oneshot;

use super::device::Inner;
use super::stats::add;
use super::{BufferSlice, Device};
use crate::error::Result;

/// Staging buffers kept for reuse.
const POOL_ENTRIES: usize = 4;
const SMALLEST: u64 = 256;

#[derive(Default)]
pub(super) struct StagingPool {
    free: Vec<wgpu::Buffer>,
}

impl StagingPool {
    /// The smallest free buffer that holds `size` bytes.
    fn take(&mut self, size: u64) -> Option<wgpu::Buffer> {
        let best =
            (0..self.free.len()).filter(|i| self.free[*i].size() >= size).min_by_key(|i| self.free[*i].size())?;
        Some(self.free.swap_remove(best))
    }

    /// Keeps a buffer; returns the one that is to go, the smallest, when there are too many.
    fn put(&mut self, buffer: wgpu::Buffer) -> Option<wgpu::Buffer> {
        self.free.push(buffer);
        if self.free.len() <= POOL_ENTRIES {
            return None;
        }
        let smallest = (0..self.free.len()).min_by_key(|i| self.free[*i].size())?;
        Some(self.free.swap_remove(smallest))
    }

    pub fn drain(&mut self) -> Vec<wgpu::Buffer> {
        std::mem::take(&mut self.free)
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
}

impl Device {
    /// Starts reading these slices: one staging buffer, one submit together with all that was recorded, one map. Offsets
    /// must be multiples of 4; lengths may be anything.
    pub fn read(&self, slices: &[BufferSlice]) -> Result<Readback> {
        let inner = self.inner();
        inner.check_usable()?;
        let mut parts = Vec::with_capacity(slices.len());
        let mut total = 0u64;
        for slice in slices {
            parts.push((total as usize, slice.size as usize));
            total += slice.size.next_multiple_of(4);
        }
        let staging = inner.staging(total);
        for (slice, (offset, _)) in slices.iter().zip(&parts) {
            let padded = BufferSlice { size: slice.size.next_multiple_of(4), ..slice.clone() };
            self.copy(&padded, &staging, *offset as u64);
        }
        self.flush();
        let (sender, mapped) = oneshot::channel();
        let sender = RefCell::new(Some(sender));
        let length = total.max(4);
        staging.slice(..length).map_async(wgpu::MapMode::Read, move |result| {
            if let Some(sender) = sender.take() {
                // Nobody waits when the read-back was dropped.
                let _ = sender.send(result);
            }
        });
        add(&inner.counters.maps, 1);
        add(&inner.counters.bytes_read_back, total);
        Ok(Readback { device: self.clone(), staging: Some(staging), parts, length, mapped })
    }

    /// Submits what was recorded and waits until the GPU has done it. Reports the first error since the last wait.
    pub async fn sync(&self) -> Result<()> {
        let inner = self.inner().clone();
        inner.check_usable()?;
        self.flush();
        add(&inner.counters.syncs, 1);
        let finished = inner.work_done().await;
        inner.take_fault().await?;
        if !finished {
            bail!(DeviceLost, "the GPU device went away during a wait");
        }
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
        match mapped {
            Ok(Ok(())) => {}
            _ => bail!(DeviceLost, "the GPU device went away while a result was read back"),
        }
        let view = staging.slice(..self.length).get_mapped_range();
        let view = match view {
            Ok(view) => view,
            Err(error) => bail!(Internal, "a staging buffer could not be read: {error}"),
        };
        let parts = self.parts.iter().map(|(offset, size)| view[*offset..offset + size].to_vec()).collect();
        drop(view);
        staging.unmap();
        inner.return_staging(staging);
        Ok(parts)
    }
}

impl Drop for Readback {
    fn drop(&mut self) {
        // Not awaited, so still mapped or about to be: not fit for reuse.
        if let Some(staging) = self.staging.take() {
            self.device.inner().counters.buffer_destroyed(staging.size());
            staging.destroy();
        }
    }
}

impl Inner {
    fn staging(self: &Rc<Self>, size: u64) -> wgpu::Buffer {
        let size = size.max(SMALLEST).next_power_of_two();
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
        self.queue.on_submitted_work_done(move || {
            let _ = sender.send(());
        });
        self.drive();
        done.await.is_ok()
    }

    /// Lets callbacks run. A browser does that itself; natively nobody else polls the device.
    #[cfg(not(target_arch = "wasm32"))]
    fn drive(&self) {
        // A failed poll is a lost device, which the callbacks report.
        let _ = self.wgpu.poll(wgpu::PollType::wait_indefinitely());
    }

    #[cfg(target_arch = "wasm32")]
    fn drive(&self) {}
}
