//! What a caller may ask of a device.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cpu::Team;
use super::simulated::SimulatedGpu;

/// Which adapter to take if there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum PowerPreference {
    /// The adapter that saves power, as a rule the integrated GPU.
    LowPower,
    /// The fastest adapter.
    #[default]
    HighPerformance,
}

/// What runs the kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// In the wasm of the CPU that, and in the other the GPU; natively what the environment variable `RILLM_DEVICE` names, or else the GPU.
    #[default]
    Auto,
    /// A GPU, or what stands in for one.
    Gpu,
    /// The CPU, by functions in place of shaders.
    Cpu,
}

/// How many entries caches keep; 0 keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    /// Uniform buffers. 512 by default.
    pub uniforms: usize,
    /// Bind groups. 256 by default.
    pub bind_groups: usize,
    /// Staging buffers for read-backs above 256 bytes. 4 by default.
    pub staging: usize,
}

impl Default for CacheSizes {
    fn default() -> Self {
        Self { uniforms: 512, bind_groups: 256, staging: 4 }
    }
}

/// How a device is made. The default takes the fastest adapter with all its features.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// What runs the kernels. For the CPU nothing of the adapter counts.
    pub kind: DeviceKind,
    /// On the CPU, pack weights as they come, and round the activations that they are multiplied with to 8 bits, a scale for every 32. On GPUs
    /// ops of their own do that.
    pub packs_weights: bool,
    /// On the CPU, threads in whose memory weights are, and which multiply with them.
    pub team: Option<Arc<dyn Team>>,
    /// Which adapter to take if there are several.
    pub power_preference: PowerPreference,
    /// Take the software adapter.
    pub force_fallback_adapter: bool,
    /// Use no subgroups even if the adapter has them, to test and compare the kernels without them.
    pub without_subgroups: bool,
    /// Take the kernels for software adapters (true) or those for GPUs (false) on any adapter, to test both.
    pub software_kernels: Option<bool>,
    /// Use no packed dot products even if the adapter has them, to test the kernels without them.
    pub without_packed_dot: bool,
    /// The most bytes of workgroup memory to use, to test the kernels of smaller adapters.
    pub workgroup_storage: Option<u32>,
    /// The most bytes of one binding, to test large tensors as smaller adapters see them.
    pub storage_binding: Option<u64>,
    /// The most bytes of buffers. Allocations beyond fail as they do in a browser whose GPU has no more, to test what follows.
    pub memory_limit: Option<u64>,
    /// Submit each dispatch by itself, so that an error names its kernel, and log each kernel when the GPU has finished it.
    pub debug: bool,
    /// Submit after this number of dispatches; 0 for no limit.
    pub max_batch: usize,
    /// How many entries the caches keep.
    pub caches: CacheSizes,
    /// Take the times of submits from a made-up GPU, to test how they are sized.
    pub simulated_gpu: Option<SimulatedGpu>,
}
