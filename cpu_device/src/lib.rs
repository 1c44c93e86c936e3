//! The CPU as a device: an implementation of wgpu's interface (its `custom` backend) whose buffers are in Rust memory and whose pipelines
//! are functions. So everything above, from the recorder to the read-back, is the same as on a GPU.
//!
//! What is submitted runs at once, in the call. Callbacks come later (`callbacks.rs`), as those of a GPU do.

mod backend;
mod callbacks;
mod commands;
mod errors;
mod kernel;
mod memory;

pub use kernel::{CpuKernel, Lent};

use std::sync::Arc;

use backend::{CpuDevice, CpuQueue, Shared};

/// A device and its queue.
pub fn request() -> (wgpu::Device, wgpu::Queue) {
    #[cfg_attr(
        target_arch = "wasm32",
        expect(clippy::arc_with_non_send_sync, reason = "wgpu hands it on in an Arc; there is one thread")
    )]
    let shared = Arc::new(Shared::default());
    let queue = wgpu::Queue::from_custom(CpuQueue::new(shared.clone()));
    (wgpu::Device::from_custom(CpuDevice::new(shared)), queue)
}

/// Whether it is one of `request`.
pub fn is_cpu(device: &wgpu::Device) -> bool {
    device.as_custom::<CpuDevice>().is_some()
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
