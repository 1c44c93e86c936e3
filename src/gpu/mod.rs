//! The GPU runtime: device, buffers, pipelines, recorded commands, read-back and counters.
//!
//! This layer knows bytes, WGSL text and dispatches. It never sees a shape, a dtype or a model.

mod bind;
mod buffer;
mod device;
mod fifo;
mod pipeline;
mod readback;
mod recorder;
mod stats;
mod uniform;
mod upload;
mod wgsl;

pub use bind::Binding;
pub use buffer::{BINDING_ALIGNMENT, Buffer, BufferSlice};
pub use device::{AdapterInfo, Capabilities, Device, DeviceOptions, PowerPreference};
pub use pipeline::Pipeline;
pub use readback::Readback;
pub use recorder::{Grid, Recording};
pub use stats::{CacheStats, Stats};
pub use upload::HostBytes;
pub use wgsl::{Define, Shader};
