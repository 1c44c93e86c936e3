//! GPU time of submits by timestamp queries. WebGPU takes timestamps only at the borders of passes. So while kernels are timed,
//! each dispatch has a compute pass of its own, and the sum is more than a step takes; a chain that is timed as a whole is one
//! pass.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;

use super::buffer::{Buffer, BufferSlice};
use super::command::Command;
use super::pool::BufferPool;
use super::raw::RawDevice;

/// A query set holds this many timestamps (the limit of WebGPU's specification), two for each dispatch.
const MAX_QUERIES: u32 = 4096;

/// GPU time of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct KernelTime {
    /// The number of its dispatches.
    pub dispatches: u64,
    /// The time of all of them together.
    pub nanoseconds: u64,
    /// Bytes of the tensors bound for reading only, summed over the dispatches. A kernel that reads its whole input, such as a
    /// mat-vec, reads this much; a kernel that picks rows reads less.
    pub read_bytes: u64,
}

/// GPU time of one kernel with inputs of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct KernelUse {
    /// The kernel's name.
    pub label: String,
    /// Its dispatches and their time.
    #[serde(flatten)]
    pub time: KernelTime,
}

/// What the passes of a submit are timed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Timing {
    #[default]
    Off,
    Dispatches,
    /// Each submit as a whole, which is one pass.
    Submits,
}

/// Times submits, and keeps their timestamps until they are read.
#[derive(Default)]
pub(super) struct Profiler {
    pub timing: Cell<Timing>,
    pending: RefCell<Vec<Pending>>,
}

/// Timestamps of one submit, on the GPU.
pub(super) struct Pending {
    kernels: Vec<Timed>,
    timestamps: Buffer,
}

/// A dispatch that is timed: the kernel's label, and the bytes bound for reading.
type Timed = (String, u64);

impl Pending {
    /// The pairs of timestamps.
    pub fn slice(&self) -> BufferSlice {
        BufferSlice { size: self.kernels.len() as u64 * 16, ..self.timestamps.slice() }
    }
}

/// The queries of the submit that is being encoded.
pub(super) struct Queries {
    set: wgpu::QuerySet,
    /// Whether each dispatch is to have a pass of its own.
    pub by_dispatch: bool,
    kernels: Vec<Timed>,
    next: u32,
    resolve: wgpu::Buffer,
    timestamps: Buffer,
}

impl Profiler {
    /// Whether each submit is timed as a whole, so that it must not be cut.
    pub fn times_submits(&self) -> bool {
        self.timing.get() == Timing::Submits
    }

    /// Queries for the dispatches of a submit; those beyond the limit are not timed.
    pub fn begin(&self, raw: &RawDevice, pool: &Rc<BufferPool>, commands: &[Command]) -> Option<Queries> {
        if self.timing.get() == Timing::Off {
            return None;
        }
        let by_dispatch = self.timing.get() == Timing::Dispatches;
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
        let set = raw.wgpu.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("kernel times"),
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        let resolve = raw.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("kernel times"),
            size,
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        raw.check_usable().ok()?;
        let timestamps = Buffer::pooled(pool, size, "kernel times").ok()?;
        Some(Queries { set, by_dispatch, kernels, next: 0, resolve, timestamps })
    }

    /// Keeps the timestamps of a submit.
    pub fn submitted(&self, queries: Queries) {
        self.pending.borrow_mut().push(Pending { kernels: queries.kernels, timestamps: queries.timestamps });
    }

    /// Returns what was kept, and keeps `instead`.
    pub fn replace_pending(&self, instead: Vec<Pending>) -> Vec<Pending> {
        self.pending.replace(instead)
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

/// GPU times by kernel and by the bytes that a dispatch has bound for reading: `nanoseconds` of each dispatch of `pending`.
pub(super) fn by_kernel(pending: &[Pending], nanoseconds: Vec<Vec<u64>>) -> Vec<KernelUse> {
    let mut times: BTreeMap<Timed, KernelTime> = BTreeMap::new();
    for (pending, nanoseconds) in pending.iter().zip(nanoseconds) {
        for (kernel, nanoseconds) in pending.kernels.iter().zip(nanoseconds) {
            let time = times.entry(kernel.clone()).or_default();
            time.dispatches += 1;
            time.read_bytes += kernel.1;
            time.nanoseconds += nanoseconds;
        }
    }
    times.into_iter().map(|((label, _), time)| KernelUse { label, time }).collect()
}
