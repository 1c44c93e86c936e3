//! The CPU as a device: an implementation of wgpu's interface (its `custom` backend) whose buffers are in Rust memory and whose pipelines
//! are functions. So everything above, from the recorder to the read-back, is the same as on a GPU.
//!
//! What is submitted runs at once, in the call. Callbacks come later (`callbacks.rs`), as those of a GPU do.

#![cfg_attr(
    target_arch = "wasm32",
    allow(clippy::arc_with_non_send_sync, reason = "wgpu hands objects on in an Arc; there is one thread")
)]

mod backend;
mod callbacks;
mod commands;
mod errors;
mod kernel;
mod memory;
mod team;
mod twin;

pub use kernel::{CpuKernel, Lent, Problem, Written};
pub use team::{Team, TeamAddress, TeamAttention, TeamBytes, TeamFeedForward, TeamMatrix, memory_of};
pub use twin::Twin;

use std::sync::Arc;

use backend::{CpuDevice, CpuQueue, Shared};

/// A device and its queue. With a team, buffers of weights can be in its memory (`next_is_of_team`).
pub fn request(team: Option<Arc<dyn Team>>) -> (wgpu::Device, wgpu::Queue) {
    let shared = Arc::new(Shared::new(team));
    let queue = wgpu::Queue::from_custom(CpuQueue::new(shared.clone()));
    (wgpu::Device::from_custom(CpuDevice::new(shared)), queue)
}

/// Whether it is one of `request`.
pub fn is_cpu(device: &wgpu::Device) -> bool {
    device.as_custom::<CpuDevice>().is_some()
}

/// The next buffer that is made is in the team's memory, if there is a team. Only kernels can use it.
pub fn next_is_of_team(device: &wgpu::Device) {
    if let Some(device) = device.as_custom::<CpuDevice>() {
        device.next_is_of_team();
    }
}

/// The pipeline that runs `kernel`. `None` if the device is a GPU.
pub fn pipeline(
    device: &wgpu::Device,
    label: &str,
    layout: &wgpu::PipelineLayout,
    kernel: Arc<dyn CpuKernel>,
) -> Option<wgpu::ComputePipeline> {
    // wgpu makes pipelines of shaders only, so the device is told before which function the next one is.
    device.as_custom::<CpuDevice>()?.announce(kernel);
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(label),
        source: wgpu::ShaderSource::Dummy(std::marker::PhantomData),
    });
    Some(device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
        layout: Some(layout),
        module: &module,
        entry_point: None,
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    }))
}
