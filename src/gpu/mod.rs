//! The GPU runtime: device, buffers, pipelines, recorded commands, read-back and counters.
//!
//! This layer knows bytes, WGSL text and dispatches. It never sees a shape, a dtype or a model.

mod adapter;
mod arena;
mod attempt;
mod bind_groups;
mod binder;
mod binding;
mod buffer;
mod command;
mod compile;
#[cfg(feature = "cpu")]
mod cpu;
#[cfg(not(feature = "cpu"))]
#[path = "no_cpu.rs"]
mod cpu;
mod debug;
mod device;
mod faults;
mod fifo;
mod free_list;
mod id_ranges;
mod options;
mod pacing;
mod pipeline;
mod platform;
mod pool;
mod profile;
mod raw;
mod readback;
mod recorder;
mod shader_text;
mod simulated;
mod stats;
mod submit;
mod timeline;
mod trace;
mod transcript;
mod uniform;
mod upload;
mod wgsl;
mod write;

pub use adapter::{AdapterInfo, Capabilities, SubgroupMatrix};
pub use binding::Binding;
pub use buffer::{BINDING_ALIGNMENT, Buffer, BufferSlice};
pub use command::Grid;
pub use cpu::{
    CpuKernel, Lent, Problem, Team, TeamAddress, TeamAttention, TeamBytes, TeamFeedForward, TeamMatrix, memory_of,
};
pub use device::Device;
pub use options::{CacheSizes, DeviceKind, DeviceOptions, PowerPreference};
pub use pacing::set_page_hidden;
pub use pipeline::Pipeline;
pub use profile::{KernelTime, KernelUse};
pub use readback::{Readback, RecordedReadback};
pub use recorder::plan::Recording;
pub use shader_text::shader_text;
pub use simulated::{SimulatedGpu, SimulatedSubmit, SimulatedWork};
pub use stats::{CacheStats, FlushReason, Flushes, Holdings, MemoryStats, PoolClassStats, PoolStats, Stats};
pub use transcript::Transcript;
pub use upload::HostBytes;
pub use wgsl::{Define, Shader, Template};
