//! GPU time per kernel, or of chains of dispatches, by timestamp queries. WebGPU takes timestamps only at the borders of passes.
//! So while kernels are timed, each dispatch has a compute pass of its own, and the sum is more than a step takes; a chain that
//! is timed as a whole is one pass.

use std::collections::BTreeMap;

use serde::Serialize;

use super::device::Inner;
use super::recorder::Command;
use super::stats::FlushReason;
use super::{BufferSlice, Device};
use crate::error::Result;

/// A query set holds this many timestamps (the limit of WebGPU's specification), two for each dispatch.
const MAX_QUERIES: u32 = 4096;

/// What one kernel took while profiling was on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelTime {
    pub dispatches: u64,
    pub nanoseconds: u64,
    /// Bytes of the buffers that were bound for reading only, summed over the dispatches. A kernel that reads all of its
    /// input reads so much, as a mat-vec its weights; one that picks rows, such as a gather, reads less.
    pub read_bytes: u64,
}

/// The dispatches of one kernel with inputs of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelUse {
    pub label: String,
    #[serde(flatten)]
    pub time: KernelTime,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Timing {
    #[default]
    Off,
    Dispatches,
    /// Each submit as a whole, which is one pass.
    Submits,
}

#[derive(Default)]
pub(super) struct Profiler {
    timing: Timing,
    pending: Vec<Pending>,
}

/// Timestamps of one submit, on the GPU.
struct Pending {
    kernels: Vec<Timed>,
    timestamps: super::Buffer,
}

/// A dispatch that is timed: the kernel's label, and the bytes bound for reading.
type Timed = (String, u64);

/// The queries of the submit that is being encoded.
pub(super) struct Queries {
    set: wgpu::QuerySet,
    /// Whether each dispatch is to have a pass of its own.
    pub by_dispatch: bool,
    kernels: Vec<Timed>,
    next: u32,
    resolve: wgpu::Buffer,
    timestamps: super::Buffer,
}

impl Profiler {
    /// Queries for the dispatches of a submit; those beyond the limit are not timed.
    pub fn begin(&mut self, device: &Inner, commands: &[Command]) -> Option<Queries> {
        if self.timing == Timing::Off {
            return None;
        }
        let by_dispatch = self.timing == Timing::Dispatches;
        let most = if by_dispatch { MAX_QUERIES as usize / 2 } else { 1 };
        let kernels: Vec<Timed> = commands
            .iter()
            .filter_map(|command| match command {
                Command::Dispatch { pipeline, bind_group, .. } => {
                    Some((pipeline.label().to_owned(), bind_group.read_bytes))
                }
                Command::Copy { .. } => None,
            })
            .take(most)
            .collect();
        if kernels.is_empty() {
            return None;
        }
        let count = kernels.len() as u32 * 2;
        let size = u64::from(count) * 8;
        let set = device.wgpu.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("kernel times"),
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        let resolve = device.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("kernel times"),
            size,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        // The recorder is flushing, so nothing is traced or captured and this is a buffer of the pool.
        let timestamps = device.handle()?.buffer(size, "kernel times").ok()?;
        Some(Queries { set, by_dispatch, kernels, next: 0, resolve, timestamps })
    }

    pub fn submitted(&mut self, queries: Queries) {
        self.pending.push(Pending { kernels: queries.kernels, timestamps: queries.timestamps });
    }
}

impl Queries {
    /// The timestamps of the next dispatch's pass.
    pub fn next(&mut self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let begin = self.next;
        if begin as usize >= self.kernels.len() * 2 {
            return None;
        }
        self.next += 2;
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: Some(begin),
            end_of_pass_write_index: Some(begin + 1),
        })
    }

    pub fn resolve(&mut self, encoder: &mut wgpu::CommandEncoder) {
        let count = self.kernels.len() as u32 * 2;
        encoder.resolve_query_set(&self.set, 0..count, &self.resolve, 0);
        if let Ok(timestamps) = self.timestamps.wgpu() {
            encoder.copy_buffer_to_buffer(&self.resolve, 0, timestamps, 0, Some(u64::from(count) * 8));
        }
    }
}

impl Device {
    /// Switches the timing of kernels on or off.
    pub fn set_profiling(&self, on: bool) -> Result<()> {
        let inner = self.inner();
        if on && !inner.capabilities.timestamp_query {
            bail!(AdapterLimits, "this adapter has no timestamp-query, so kernels can't be timed");
        }
        inner.flush(FlushReason::Explicit);
        inner.profiler.borrow_mut().timing = if on { Timing::Dispatches } else { Timing::Off };
        Ok(())
    }

    /// How long chains of dispatches take, each recorded by one call of `record` with its number. By timestamps of the GPU where
    /// the adapter has them, which browsers round to tenths of a millisecond; else by the clock, from before a chain is recorded
    /// until the wait for it ends, which is some milliseconds too long. A time of zero says that nothing was measured.
    pub async fn time_chains(
        &self,
        chains: usize,
        record: &dyn Fn(usize) -> Result<()>,
    ) -> Result<Vec<web_time::Duration>> {
        let inner = self.inner();
        let splits_submits = inner.options.debug || inner.options.max_batch > 0;
        if !inner.capabilities.timestamp_query || splits_submits {
            let mut times = Vec::with_capacity(chains);
            for chain in 0..chains {
                self.sync().await?;
                let start = web_time::Instant::now();
                record(chain)?;
                self.sync().await?;
                times.push(start.elapsed());
            }
            return Ok(times);
        }
        inner.flush(FlushReason::Explicit);
        let before = std::mem::replace(&mut inner.profiler.borrow_mut().timing, Timing::Submits);
        let kept = std::mem::take(&mut inner.profiler.borrow_mut().pending);
        let recorded = (0..chains).try_for_each(|chain| {
            record(chain)?;
            inner.flush(FlushReason::Explicit);
            Ok(())
        });
        inner.profiler.borrow_mut().timing = Timing::Off;
        let pending = std::mem::replace(&mut inner.profiler.borrow_mut().pending, kept);
        let read = match recorded {
            Ok(()) => self.read_timestamps(&pending).await,
            Err(error) => Err(error),
        };
        inner.profiler.borrow_mut().timing = before;
        let nanoseconds = read?.into_iter().map(|times| times.first().copied().unwrap_or_default());
        Ok(nanoseconds.map(web_time::Duration::from_nanos).collect())
    }

    /// The nanoseconds of each pair of timestamps.
    async fn read_timestamps(&self, pending: &[Pending]) -> Result<Vec<Vec<u64>>> {
        let period = f64::from(self.inner().queue.get_timestamp_period());
        let slices: Vec<BufferSlice> = pending
            .iter()
            .map(|pending| BufferSlice { size: pending.kernels.len() as u64 * 16, ..pending.timestamps.slice() })
            .collect();
        let submits = self.read(&slices)?.bytes().await?;
        let times = |bytes: Vec<u8>| {
            let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&bytes);
            // Some drivers let the clock jump back; such a pair says nothing.
            ticks.chunks_exact(2).map(|pair| (pair[1].saturating_sub(pair[0]) as f64 * period) as u64).collect()
        };
        Ok(submits.into_iter().map(times).collect())
    }

    /// GPU times by kernel since the last call.
    pub async fn kernel_times(&self) -> Result<BTreeMap<String, KernelTime>> {
        let mut times: BTreeMap<String, KernelTime> = BTreeMap::new();
        for KernelUse { label, time } in self.kernel_uses().await? {
            let sum = times.entry(label).or_default();
            sum.dispatches += time.dispatches;
            sum.nanoseconds += time.nanoseconds;
            sum.read_bytes += time.read_bytes;
        }
        Ok(times)
    }

    /// GPU times by kernel and by the bytes that a dispatch has bound for reading, since the last call of this or of
    /// [`Device::kernel_times`].
    pub async fn kernel_uses(&self) -> Result<Vec<KernelUse>> {
        let inner = self.inner();
        inner.flush(FlushReason::Readback);
        // The read-back itself is not to be timed.
        let timing = std::mem::take(&mut inner.profiler.borrow_mut().timing);
        let pending = std::mem::take(&mut inner.profiler.borrow_mut().pending);
        let read = self.read_timestamps(&pending).await;
        inner.profiler.borrow_mut().timing = timing;
        let mut times: BTreeMap<Timed, KernelTime> = BTreeMap::new();
        for (pending, nanoseconds) in pending.iter().zip(read?) {
            for (kernel, nanoseconds) in pending.kernels.iter().zip(nanoseconds) {
                let time = times.entry(kernel.clone()).or_default();
                time.dispatches += 1;
                time.read_bytes += kernel.1;
                time.nanoseconds += nanoseconds;
            }
        }
        Ok(times.into_iter().map(|((label, _), time)| KernelUse { label, time }).collect())
    }
}
