//! Tensors on the GPU and the operations on them.
//!
//! This layer knows shapes, dtypes and kernels. It never sees a model, a token or a URL.

mod autotune;
mod composed;
mod cpu;
#[cfg(any(test, feature = "bench"))]
pub mod dispatch_cost;
mod dtype;
mod exec;
mod groups_on_cpu;
mod host;
mod kv_blocks;
mod layout_on;
mod on_cpu;
mod op;
pub mod ops;
pub mod quant;
mod shape;
mod shape_cache;
mod soa;
mod team;
mod tuning;
mod upload;

pub use autotune::{Autotune, Chain, Clock, Subject, Tuned, TuningReport, survey};
pub(crate) use autotune::{DeviceClock, compile_ahead, take_over};
pub use composed::{cumsum, sort_rows, topk_rows};
pub(crate) use cpu::fits;
pub use dtype::DType;
pub(crate) use exec::grid_2d;
pub use exec::{Context, Plan, Tensor};
pub use host::{HostTensor, Rng};
pub use on_cpu::{CpuOp, CpuTensor, CpuTensors, by_reference};
pub use op::{Case, Desc, Kernel, Op, Reference};
pub(crate) use op::{expect, on_cpu};
pub use shape::{MAX_RANK, Shape};
pub use shape_cache::ShapeCache;
#[cfg(test)]
pub(crate) use soa::from_soa;
pub(crate) use soa::to_soa;
pub use tuning::{Choice, StoredTunings, TuningKey, Tunings, Variant};
pub use upload::{TargetRows, WeightUpload};

// What layers above need of the runtime, so that they never import `gpu`.
pub use crate::gpu::{
    AdapterInfo, Buffer, CacheSizes, CacheStats, Capabilities, Define, Device, DeviceKind, DeviceOptions, Flushes,
    Holdings, HostBytes, KernelTime, KernelUse, PowerPreference, Readback, Stats, SubgroupMatrix,
};
