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
}

#[derive(Default)]
pub(super) struct Profiler {
    on: bool,
    pending: Vec<Pending>,
}

/// Timestamps of one submit, on the GPU.
struct Pending {
    labels: Vec<String>,
    timestamps: super::Buffer,
}

/// The queries of the submit that is being encoded.
pub(super) struct Queries {
    set: wgpu::QuerySet,
    labels: Vec<String>,
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
        let labels: Vec<String> = commands
            .iter()
            .filter_map(|command| match command {
                Command::Dispatch { pipeline, .. } => Some(pipeline.label().to_owned()),
                Command::Copy { .. } => None,
            })
            .take(MAX_QUERIES as usize / 2)
            .collect();
        if labels.is_empty() {
            return None;
        }
        let count = labels.len() as u32 * 2;
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
        Some(Queries { set, labels, next: 0, resolve, timestamps })
    }

    pub fn submitted(&mut self, queries: Queries) {
        self.pending.push(Pending { labels: queries.labels, timestamps: queries.timestamps });
    }
}

impl Queries {
    /// The timestamps of the next dispatch's pass.
    pub fn next(&mut self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let begin = self.next;
        if begin as usize >= self.labels.len() * 2 {
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
        let count = self.labels.len() as u32 * 2;
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
        let inner = self.inner();
        inner.flush(FlushReason::Readback);
        // The read-back itself is not to be timed.
        let was_on = std::mem::take(&mut inner.profiler.borrow_mut().on);
        let pending = std::mem::take(&mut inner.profiler.borrow_mut().pending);
        let slices: Vec<BufferSlice> = pending
            .iter()
            .map(|pending| BufferSlice { size: pending.labels.len() as u64 * 16, ..pending.timestamps.slice() })
            .collect();
        let bytes = self.read(&slices)?.bytes().await?;
        inner.profiler.borrow_mut().on = was_on;
        let mut times: BTreeMap<String, KernelTime> = BTreeMap::new();
        for (pending, bytes) in pending.iter().zip(bytes) {
            let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&bytes);
            for (label, pair) in pending.labels.iter().zip(ticks.chunks_exact(2)) {
                let time = times.entry(label.clone()).or_default();
                time.dispatches += 1;
                // Some drivers let the clock jump back; such a pair says nothing.
                let period = f64::from(inner.queue.get_timestamp_period());
                time.nanoseconds += (pair[1].saturating_sub(pair[0]) as f64 * period) as u64;
            }
        }
        Ok(times)
    }
}
