//! The GPU runtime: device, buffers, pipelines, recorded commands, read-back and counters.
//!
//! This layer knows bytes, WGSL text and dispatches. It never sees a shape, a dtype or a model.

mod arena;
mod bind;
mod buffer;
mod device;
mod fifo;
mod pipeline;
mod profile;
mod readback;
mod recorder;
mod stats;
mod timeline;
mod trace;
mod uniform;
mod upload;
mod wgsl;
mod write;

pub use bind::Binding;
pub use buffer::{BINDING_ALIGNMENT, Buffer, BufferSlice};
pub use device::{AdapterInfo, CacheSizes, Capabilities, Device, DeviceOptions, PowerPreference, SubgroupMatrix};
pub use pipeline::Pipeline;
pub use profile::{KernelTime, KernelUse};
pub use readback::Readback;
pub use recorder::{Grid, Recording};
pub use stats::{CacheStats, FlushReason, Flushes, Stats};
pub use upload::HostBytes;
pub use wgsl::{Define, Shader, Template};
