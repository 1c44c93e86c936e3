//! Kernels that sum over a part of a subgroup assume that invocations with neighbouring indices are neighbouring lanes. Every
//! known driver does this, but WGSL does not promise it, so a probe checks it first.

use futures_channel::oneshot;

use crate::error::Result;
use crate::gpu::wgsl::{Shader, Template};

const INVOCATIONS: usize = 64;

/// Whether the invocations of a workgroup fill subgroups of at least `smallest` lanes in the order of their indices.
pub async fn lanes_follow_indices(device: &wgpu::Device, queue: &wgpu::Queue, smallest: u32) -> Result<bool> {
    let template = Template::Static(crate::shader!("probe.wgsl"));
    let text =
        Shader { label: "probe", template, modules: &[], defines: &[] }.assemble(super::ENABLE_SUBGROUPS_LINE)?;
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("probe"),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("probe"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    let buffer = |label, usage| {
        let size = INVOCATIONS as u64 * 8;
        device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false })
    };
    let lanes = buffer("probe", wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
    let staging = buffer("probe", wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("probe"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: lanes.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bind_group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    drop(pass);
    encoder.copy_buffer_to_buffer(&lanes, 0, &staging, 0, None);
    queue.submit([encoder.finish()]);
    let refused = scope.pop();

    let (sender, mapped) = oneshot::channel();
    staging.slice(..).map_async(wgpu::MapMode::Read, move |result| {
        let _ = sender.send(result.is_ok());
    });
    // Lets the callback run; a browser does that itself.
    let _ = device.poll(wgpu::PollType::wait_indefinitely());
    let is_mapped = mapped.await == Ok(true);
    if refused.await.is_some() || !is_mapped {
        return Ok(false);
    }
    let follow = staging.slice(..).get_mapped_range().is_ok_and(|bytes| {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        words.chunks_exact(2).enumerate().all(|(index, word)| {
            let (lane, size) = (word[0], word[1]);
            size >= smallest && size.is_power_of_two() && lane == index as u32 % size
        })
    });
    lanes.destroy();
    staging.destroy();
    Ok(follow)
}
