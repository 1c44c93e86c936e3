//! Tensors on the GPU and the operations on them.
//!
//! This layer knows shapes, dtypes and kernels. It never sees a model, a token or a URL.

mod batch;
mod dtype;
mod exec;
mod host;
mod op;
pub mod ops;
mod planar;
pub mod quant;
mod shape;
mod shape_cache;
mod truncation;
mod upload;

pub use batch::Batch;
pub use dtype::DType;
pub use exec::{Context, Plan, Tensor};
pub use host::{HostTensor, Rng};
pub use op::{Case, Desc, Kernel, Op};
pub use planar::{from_planar, to_planar};
pub use shape::Shape;
pub use shape_cache::ShapeCache;
pub use truncation::{Choice, SampleSettings};
pub use upload::WeightUpload;

// What layers above need of the runtime, so that they never import `gpu`.
pub use crate::gpu::{
    AdapterInfo, Buffer, CacheStats, Capabilities, Device, DeviceOptions, HostBytes, KernelUse, PowerPreference,
    Readback, Stats,
};
