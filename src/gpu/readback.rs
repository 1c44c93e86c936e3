//! Reading buffers back: copies into staging buffers, mapped as soon as they are submitted.
//!
//! Several read-backs may be in flight; each has a staging buffer of its own until it is awaited or dropped. Those of up to
//! 256 bytes, such as a sampled token, have a pool of their own, so that many small ones in flight neither create buffers nor
//! push large ones out.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures_channel::oneshot;

use super::buffer::BufferSlice;
use super::command::Direction;
use super::pacing::{Segment, SubmitQueue};
use super::pool::BufferPool;
use super::raw::RawDevice;
use super::recorder::Recorder;
use super::stats::{FlushReason, add};
use super::timeline::Report;
use crate::error::Result;

const TINY: u64 = 256;

/// Tiny staging buffers kept for reuse.
const TINY_ENTRIES: usize = 32;

/// The staging buffers of a device.
pub(super) struct StagingPool {
    raw: Rc<RawDevice>,
    state: RefCell<State>,
}

struct State {
    free: Vec<wgpu::Buffer>,
    limit: usize,
    tiny: Vec<wgpu::Buffer>,
    /// Given up before the submission that copies to them, after which they are free.
    parked: Vec<(u64, wgpu::Buffer)>,
}

impl State {
    /// The smallest free buffer that holds `size` bytes.
    fn take(&mut self, size: u64) -> Option<wgpu::Buffer> {
        if size <= TINY {
            return self.tiny.pop();
        }
        let best =
            (0..self.free.len()).filter(|i| self.free[*i].size() >= size).min_by_key(|i| self.free[*i].size())?;
        Some(self.free.swap_remove(best))
    }

    /// Keeps a buffer. If there are too many, returns the smallest, to be destroyed.
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
}

impl StagingPool {
    /// Keeps at most `limit` buffers that are not tiny.
    pub fn new(raw: Rc<RawDevice>, limit: usize) -> Self {
        Self { raw, state: RefCell::new(State { free: Vec::new(), limit, tiny: Vec::new(), parked: Vec::new() }) }
    }

    /// A buffer of at least `size` bytes.
    fn take(&self, size: u64) -> wgpu::Buffer {
        let size = size.max(TINY).next_power_of_two();
        let submitted = self.raw.timeline.submitted();
        let parked = std::mem::take(&mut self.state.borrow_mut().parked);
        for (number, buffer) in parked {
            self.put_after(number, buffer, submitted);
        }
        if let Some(buffer) = self.state.borrow_mut().take(size) {
            return buffer;
        }
        self.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    fn put(&self, buffer: wgpu::Buffer) {
        if let Some(extra) = self.state.borrow_mut().put(buffer) {
            self.destroy(extra);
        }
    }

    /// Takes back a buffer to which the submission `number` copies, and which was never mapped.
    fn put_after(&self, number: u64, buffer: wgpu::Buffer, submitted: u64) {
        if number <= submitted {
            self.put(buffer);
        } else {
            self.state.borrow_mut().parked.push((number, buffer));
        }
    }

    /// Bytes that wait for the next read-backs.
    pub fn free_bytes(&self) -> u64 {
        let State { free, tiny, parked, .. } = &*self.state.borrow();
        let parked = parked.iter().map(|(_, buffer)| buffer);
        free.iter().chain(tiny).chain(parked).map(wgpu::Buffer::size).sum()
    }

    /// Destroys what is kept, but for tiny buffers: what runs needs them again at once.
    pub fn trim(&self) {
        let free = std::mem::take(&mut self.state.borrow_mut().free);
        free.into_iter().for_each(|buffer| self.destroy(buffer));
    }

    /// Destroys all that is kept.
    pub fn clear(&self) {
        let mut state = self.state.borrow_mut();
        let State { free, tiny, parked, .. } = &mut *state;
        let parked = parked.drain(..).map(|(_, buffer)| buffer);
        for buffer in tiny.drain(..).chain(free.drain(..)).chain(parked) {
            self.destroy(buffer);
        }
    }

    fn destroy(&self, buffer: wgpu::Buffer) {
        self.raw.counters.buffer_destroyed(buffer.size());
        buffer.destroy();
    }
}

/// A read-back whose copies are recorded, and go with whatever is submitted next.
pub struct RecordedReadback {
    pool: Rc<BufferPool>,
    staging_pool: Rc<StagingPool>,
    staging: Option<wgpu::Buffer>,
    /// Byte ranges of the parts in the staging buffer.
    parts: Vec<(usize, usize)>,
    total: u64,
    /// The submission that takes the copies along.
    submission: u64,
}

impl RecordedReadback {
    /// Records the copies of these slices, into one staging buffer.
    pub(super) fn record(recorder: &Recorder, staging_pool: &Rc<StagingPool>, slices: &[BufferSlice]) -> Result<Self> {
        let Recorder { raw, pool, .. } = recorder;
        raw.check_usable()?;
        if recorder.is_tracing() || recorder.is_capturing() {
            bail!(Internal, "a planned step must not read");
        }
        let mut parts = Vec::with_capacity(slices.len());
        let mut total = 0u64;
        for slice in slices {
            slice.check("read-back", pool)?;
            slice.buffer.check_usage("read-back", wgpu::BufferUsages::COPY_SRC)?;
            if !slice.offset.is_multiple_of(4) {
                bail!(OutOfRange, "a read-back from byte {}: it must begin at a multiple of 4", slice.offset);
            }
            parts.push((total as usize, slice.size as usize));
            total += slice.size.next_multiple_of(4);
        }
        let staging = staging_pool.take(total);
        for (slice, (offset, _)) in slices.iter().zip(&parts) {
            if slice.size > 0 {
                // Buffers are multiples of 4 bytes long, so the padding is there.
                let padded = BufferSlice { size: slice.size.next_multiple_of(4), ..slice.clone() };
                recorder.copy_to(&padded, &staging, *offset as u64, Direction::Readback)?;
            }
        }
        let submission = raw.timeline.last_use();
        let (pool, staging_pool) = (pool.clone(), staging_pool.clone());
        Ok(Self { pool, staging_pool, staging: Some(staging), parts, total, submission })
    }

    /// Begins to map. Submits what was recorded, if the copies are among it.
    pub(super) fn start(mut self, recorder: &Recorder) -> Result<Readback> {
        let raw = &recorder.raw;
        raw.check_usable()?;
        let Some(staging) = self.staging.take() else { bail!(Internal, "a read-back was started twice") };
        if raw.timeline.submitted() < self.submission {
            recorder.flush(FlushReason::Readback);
        }
        let is_last = raw.timeline.submitted() <= self.submission;
        let report =
            if is_last { raw.timeline.reported_by_readback() } else { raw.timeline.report_of(self.submission) };
        let (sender, mapped) = oneshot::channel();
        let told: Told = Arc::new(Mutex::new(Some((sender, report))));
        let teller = Teller(told.clone());
        let length = self.total.max(4);
        let mapping = Rc::new(Cell::new(Mapping::Waits));
        let (buffer, state) = (staging.clone(), mapping.clone());
        // A buffer is mapped after the submit that copies to it.
        let map = move || {
            if state.get() == Mapping::Dropped {
                return;
            }
            state.set(Mapping::Began);
            buffer.slice(..length).map_async(wgpu::MapMode::Read, move |result| {
                if let Some((sender, report)) = teller.take() {
                    report.done(result.is_ok());
                    // The receiver is gone if the read-back was dropped.
                    let _ = sender.send(result);
                }
            });
        };
        recorder.queue.after(self.submission, Box::new(map));
        add(&raw.counters.maps, 1);
        add(&raw.counters.bytes_read_back, self.total);
        Ok(Readback {
            pool: self.pool.clone(),
            queue: recorder.queue.clone(),
            staging_pool: self.staging_pool.clone(),
            staging: Some(staging),
            parts: std::mem::take(&mut self.parts),
            length,
            mapping,
            mapped,
            told,
        })
    }
}

impl Drop for RecordedReadback {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.take() {
            let submitted = self.staging_pool.raw.timeline.submitted();
            self.staging_pool.put_after(self.submission, staging, submitted);
        }
    }
}

/// A read-back that is on its way.
pub struct Readback {
    pool: Rc<BufferPool>,
    queue: Rc<SubmitQueue>,
    staging_pool: Rc<StagingPool>,
    staging: Option<wgpu::Buffer>,
    /// Byte ranges of the parts in the staging buffer.
    parts: Vec<(usize, usize)>,
    length: u64,
    mapping: Rc<Cell<Mapping>>,
    mapped: oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>,
    told: Told,
}

/// Whether the mapping of a read-back has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapping {
    /// The copies are held back.
    Waits,
    Began,
    /// Nobody wants it any more.
    Dropped,
}

/// Reports the mapping to the timeline; taken by the first that learns of it. Natively the callback may run on another thread.
type Told = Arc<Mutex<Option<(oneshot::Sender<Result<(), wgpu::BufferAsyncError>>, Report)>>>;

/// Whoever drops it without telling tells that nothing will come.
struct Teller(Told);

impl Teller {
    fn take(&self) -> Option<(oneshot::Sender<Result<(), wgpu::BufferAsyncError>>, Report)> {
        self.0.lock().ok().and_then(|mut told| told.take())
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if let Some((_, report)) = self.take() {
            report.done(false);
        }
    }
}

impl Readback {
    /// Waits for the bytes, one vector per slice.
    pub async fn bytes(mut self) -> Result<Vec<Vec<u8>>> {
        self.staging_pool.raw.drive();
        let mapped = self.queue.clone().until(&mut self.mapped).await;
        self.pool.take_fault().await?;
        let Some(staging) = self.staging.take() else { bail!(Internal, "a read-back was awaited twice") };
        if !matches!(mapped, Ok(Ok(()))) {
            bail!(DeviceLost, "the GPU device went away while a result was read back");
        }
        let view = match staging.slice(..self.length).get_mapped_range() {
            Ok(view) => view,
            // JavaScript's error for an array that there is no room for.
            Err(error) if error.to_string().contains("RangeError") => {
                bail!(OutOfMemory, "there is no room for {} bytes of a result: {error}", self.length)
            }
            // Nothing but a device that goes away ends a mapping.
            Err(_) => bail!(DeviceLost, "the GPU device went away before a result could be read"),
        };
        let parts = self.parts.iter().map(|(offset, size)| view[*offset..offset + size].to_vec()).collect();
        drop(view);
        staging.unmap();
        self.staging_pool.put(staging);
        if self.pool.has_retired() {
            self.pool.reap();
        }
        Ok(parts)
    }
}

impl Drop for Readback {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.take() {
            // A mapping that is cancelled may never call back.
            drop(Teller(self.told.clone()));
            if self.mapping.replace(Mapping::Dropped) == Mapping::Waits && !self.staging_pool.raw.is_disposed() {
                // Whoever takes it next copies to it after what is held back.
                self.staging_pool.put(staging);
            } else {
                // Still mapped or about to be: not fit for reuse.
                self.staging_pool.destroy(staging);
            }
        }
    }
}

/// Submits what was recorded and waits until the GPU has done it. When the last thing submitted was a read-back, its mapping is
/// the wait, and nothing more is asked of the GPU.
pub(super) async fn sync(recorder: &Recorder) -> Result<()> {
    let Recorder { raw, pool, .. } = recorder;
    raw.check_usable()?;
    let is_done = work_done(recorder).await;
    pool.take_fault().await?;
    if !is_done {
        bail!(DeviceLost, "the GPU device went away during a wait");
    }
    pool.reap();
    Ok(())
}

/// The same where nothing is to be heard of errors: the next wait reports what went wrong.
pub(super) async fn settle(recorder: &Recorder) {
    if recorder.raw.check_usable().is_ok() {
        work_done(recorder).await;
        recorder.pool.reap();
    }
}

/// Submits what was recorded and waits until the GPU has done it. False if it went away.
async fn work_done(recorder: &Recorder) -> bool {
    let Recorder { raw, .. } = recorder;
    recorder.flush(FlushReason::Sync);
    if raw.timeline.has_writes() {
        // Only a submission after them can be waited for.
        let number = raw.timeline.submit();
        if recorder.queue.holds_back() {
            recorder.queue.push(Segment { number, commands: Vec::new(), staged: None, reason: FlushReason::Sync });
        } else {
            raw.queue.submit([]);
            raw.timeline.sent(number);
        }
    }
    recorder.queue.sent(raw.timeline.submitted()).await;
    add(&raw.counters.syncs, 1);
    let is_done = if raw.timeline.finished() == raw.timeline.submitted() {
        add(&raw.counters.syncs_without_wait, 1);
        true
    } else if let Some(mapped) = raw.timeline.wait_for_readback() {
        raw.drive();
        let is_done = recorder.queue.until(mapped).await == Ok(true);
        add(&raw.counters.syncs_without_wait, u64::from(is_done));
        is_done
    } else {
        false
    };
    // A dropped read-back reports nothing.
    is_done || raw.work_done().await
}
