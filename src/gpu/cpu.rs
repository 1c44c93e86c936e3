//! The CPU as an adapter (`cpu_device` has the device).

use std::sync::Arc;

pub use rillm_cpu_device::{
    CpuKernel, Lent, Problem, Team, TeamAddress, TeamAttention, TeamBytes, TeamFeedForward, TeamMatrix, memory_of,
    next_is_of_team,
};

use super::adapter::{Adapter, AdapterInfo, Capabilities};
use crate::error::Result;

/// Whether this build has it.
#[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "natively the environment chooses"))]
pub(super) const IS_THERE: bool = true;

impl Capabilities {
    /// Whether the device is a CPU that keeps weights packed.
    pub fn packs_on_cpu(&self) -> bool {
        self.cpu && self.packs_weights
    }
}

/// A device, its queue and what is known of the adapter.
pub(super) fn request(team: Option<Arc<dyn Team>>) -> Result<(wgpu::Device, wgpu::Queue, Adapter)> {
    let adapter = Adapter {
        cpu: true,
        info: AdapterInfo {
            architecture: "cpu".to_owned(),
            description: "CPU".to_owned(),
            is_fallback: true,
            ..AdapterInfo::default()
        },
        subgroup_sizes: (1, 1),
        subgroups: false,
        packed_dot: false,
        // What it can address, and what threads have in memories of their own.
        max_memory: Some(team.as_ref().map_or(0, |team| team.most_bytes()).max(usize::MAX as u64)),
    };
    let (device, queue) = rillm_cpu_device::request(team);
    Ok((device, queue, adapter))
}

/// A kernel that pipelines share.
pub(super) fn shared(kernel: impl CpuKernel + 'static) -> Option<Arc<dyn CpuKernel>> {
    Some(Arc::new(kernel))
}

/// The pipeline that runs `kernel`. `None` if the device is a GPU.
pub(super) fn pipeline(
    device: &wgpu::Device,
    label: &str,
    layout: &wgpu::PipelineLayout,
    kernel: Arc<dyn CpuKernel>,
) -> Option<wgpu::ComputePipeline> {
    rillm_cpu_device::pipeline(device, label, layout, kernel)
}
