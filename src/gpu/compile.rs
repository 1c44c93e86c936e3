//! What a pipeline is compiled from: a shader's final text and the layout of its bindings. Layouts are made here, one for
//! each signature, instead of those that WebGPU would derive from each text.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// How a shader uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BindingKind {
    Read,
    ReadWrite,
    Uniform,
}

/// How each binding number is used.
pub(super) type Signature = Vec<(u32, BindingKind)>;

/// A bind group layout and the pipeline layout of it alone.
pub(super) struct Layout {
    pub id: u64,
    pub group: wgpu::BindGroupLayout,
    pub pipeline: wgpu::PipelineLayout,
}

/// Layouts are few (one per signature) and live as long as the device.
#[derive(Default)]
pub(super) struct Layouts(RefCell<HashMap<Signature, Rc<Layout>>>);

impl Layouts {
    /// The layout of these bindings.
    pub fn get(&self, device: &wgpu::Device, signature: &[(u32, BindingKind)]) -> Rc<Layout> {
        let mut layouts = self.0.borrow_mut();
        if let Some(layout) = layouts.get(signature) {
            return layout.clone();
        }
        let entries: Vec<wgpu::BindGroupLayoutEntry> = signature
            .iter()
            .map(|(binding, kind)| wgpu::BindGroupLayoutEntry {
                binding: *binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: match kind {
                        BindingKind::Read => wgpu::BufferBindingType::Storage { read_only: true },
                        BindingKind::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
                        BindingKind::Uniform => wgpu::BufferBindingType::Uniform,
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let group =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        let layout = Rc::new(Layout { id: layouts.len() as u64, group, pipeline });
        layouts.insert(signature.to_vec(), layout.clone());
        layout
    }
}

/// Everything that a pipeline is compiled from.
pub(super) struct Source {
    pub label: String,
    pub text: String,
    pub layout: Rc<Layout>,
    pub signature: Signature,
}

impl Source {
    /// Compiles at once. The open error scope reports what goes wrong.
    pub fn compile(&self, device: &wgpu::Device) -> wgpu::ComputePipeline {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(&self.label),
            source: wgpu::ShaderSource::Wgsl(self.text.as_str().into()),
        });
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&self.label),
            layout: Some(&self.layout.pipeline),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Kernels write workgroup memory before they read it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }
}
