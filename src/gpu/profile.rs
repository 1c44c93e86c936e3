//! GPU time per kernel, by timestamp queries. While it is on, each dispatch has a compute pass of its own, because WebGPU takes
//! timestamps only at the borders of passes; so the sum is more than a step takes.

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

#[derive(Default)]
pub(super) struct Profiler {
    on: bool,
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
    kernels: Vec<Timed>,
    next: u32,
    resolve: wgpu::Buffer,
    timestamps: super::Buffer,
}

impl Profiler {
    /// Queries for the dispatches of a submit; those beyond the limit are not timed.
    pub fn begin(&mut self, device: &Inner, commands: &[Command]) -> Option<Queries> {
        if !self.on {
            return None;
        }
        let kernels: Vec<Timed> = commands
            .iter()
            .filter_map(|command| match command {
                Command::Dispatch { pipeline, bind_group, .. } => {
                    Some((pipeline.label().to_owned(), bind_group.read_bytes))
                }
                Command::Copy { .. } => None,
            })
            .take(MAX_QUERIES as usize / 2)
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
        Some(Queries { set, kernels, next: 0, resolve, timestamps })
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
        inner.profiler.borrow_mut().on = on;
        Ok(())
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
        let was_on = std::mem::take(&mut inner.profiler.borrow_mut().on);
        let pending = std::mem::take(&mut inner.profiler.borrow_mut().pending);
        let slices: Vec<BufferSlice> = pending
            .iter()
            .map(|pending| BufferSlice { size: pending.kernels.len() as u64 * 16, ..pending.timestamps.slice() })
            .collect();
        let bytes = self.read(&slices)?.bytes().await?;
        inner.profiler.borrow_mut().on = was_on;
        let mut times: BTreeMap<Timed, KernelTime> = BTreeMap::new();
        for (pending, bytes) in pending.iter().zip(bytes) {
            let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&bytes);
            for (kernel, pair) in pending.kernels.iter().zip(ticks.chunks_exact(2)) {
                let time = times.entry(kernel.clone()).or_default();
                time.dispatches += 1;
                time.read_bytes += kernel.1;
                // Some drivers let the clock jump back; such a pair says nothing.
                let period = f64::from(inner.queue.get_timestamp_period());
                time.nanoseconds += (pair[1].saturating_sub(pair[0]) as f64 * period) as u64;
            }
        }
        Ok(times.into_iter().map(|((label, _), time)| KernelUse { label, time }).collect())
    }
}
