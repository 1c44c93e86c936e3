//! Bind groups, kept in a FIFO keyed by layout and by buffer ids, offsets and sizes.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::device::Inner;
use super::fifo::FifoCache;
use super::pipeline::Pipeline;
use super::stats::{CacheStats, add};
use super::uniform::Uniform;
use super::{BINDING_ALIGNMENT, BufferSlice, Device};
use crate::error::Result;

/// How a shader uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BindingKind {
    Read,
    ReadWrite,
    Uniform,
}

/// What is bound at one binding number of a dispatch.
#[derive(Clone)]
pub enum Binding<'a> {
    /// `var<storage, read>`. Weights are bound like this, so that they are never a hazard.
    Read(u32, BufferSlice),
    /// `var<storage, read_write>`.
    ReadWrite(u32, BufferSlice),
    /// `var<uniform>` of these bytes.
    Uniform(u32, &'a [u8]),
}

impl Binding<'_> {
    pub(super) fn number_and_kind(&self) -> (u32, BindingKind) {
        match self {
            Binding::Read(number, _) => (*number, BindingKind::Read),
            Binding::ReadWrite(number, _) => (*number, BindingKind::ReadWrite),
            Binding::Uniform(number, _) => (*number, BindingKind::Uniform),
        }
    }
}

/// A bind group and the uniforms in it, which stay as long as it does.
pub(super) struct BindGroup {
    pub wgpu: wgpu::BindGroup,
    /// Bytes of the slices bound for reading only.
    pub read_bytes: u64,
    _uniforms: Vec<Rc<Uniform>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    layout: u64,
    /// Binding number, id (buffers and uniforms count in different ranges: see `uniform.rs`), offset, size.
    entries: Vec<(u32, u64, u64, u64)>,
}

pub(super) struct BindGroupCache {
    groups: FifoCache<Key, BindGroup>,
    layouts: HashMap<Vec<(u32, BindingKind)>, Rc<Layout>>,
}

/// A bind group layout and the pipeline layout of it alone.
pub(super) struct Layout {
    pub id: u64,
    pub group: wgpu::BindGroupLayout,
    pub pipeline: wgpu::PipelineLayout,
}

impl BindGroupCache {
    pub fn new(limit: usize) -> Self {
        Self { groups: FifoCache::new(limit), layouts: HashMap::new() }
    }

    /// Drops the bind groups that name one of these buffers. One call for many, because it looks at every entry.
    pub fn forget_buffers(&mut self, ids: &HashSet<u64>) {
        if !ids.is_empty() {
            self.groups.remove_where(|key| key.entries.iter().any(|entry| ids.contains(&entry.1)));
        }
    }

    pub fn stats(&self) -> CacheStats {
        self.groups.stats()
    }

    pub fn reset_stats(&mut self) {
        self.groups.reset_stats();
    }
}

impl Device {
    /// The layout of these bindings. Layouts are few (one per signature) and live as long as the device.
    pub(super) fn layout(&self, signature: &[(u32, BindingKind)]) -> Rc<Layout> {
        let inner = self.inner();
        let mut cache = inner.bind_groups.borrow_mut();
        if let Some(layout) = cache.layouts.get(signature) {
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
            inner.wgpu.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline = inner.wgpu.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        let layout = Rc::new(Layout { id: cache.layouts.len() as u64, group, pipeline });
        cache.layouts.insert(signature.to_vec(), layout.clone());
        layout
    }

    /// The bind group of these bindings for a pipeline made with the same signature.
    pub(super) fn bind_group(&self, pipeline: &Pipeline, bindings: &[Binding<'_>]) -> Result<Rc<BindGroup>> {
        let inner = self.inner();
        let mut uniforms = Vec::new();
        let mut key = Key { layout: pipeline.layout.id, entries: Vec::with_capacity(bindings.len()) };
        for binding in bindings {
            match binding {
                Binding::Read(number, slice) | Binding::ReadWrite(number, slice) => {
                    inner.check_binding(pipeline, *number, slice)?;
                    let start = slice.buffer.start() + slice.offset;
                    key.entries.push((*number, slice.buffer.id().unwrap_or(0), start, slice.size));
                }
                Binding::Uniform(number, bytes) => {
                    let uniform = self.uniform(bytes);
                    key.entries.push((*number, uniform.id, 0, bytes.len() as u64));
                    uniforms.push(uniform);
                }
            }
        }
        if let Some(group) = inner.bind_groups.borrow_mut().groups.get(&key) {
            return Ok(group);
        }
        let mut next_uniform = uniforms.iter();
        let mut entries = Vec::with_capacity(bindings.len());
        let mut read_bytes = 0;
        for binding in bindings {
            if let Binding::Read(_, slice) = binding {
                read_bytes += slice.size;
            }
            let (number, resource) = match binding {
                Binding::Read(number, slice) | Binding::ReadWrite(number, slice) => {
                    let resource = wgpu::BufferBinding {
                        buffer: slice.buffer.wgpu()?,
                        offset: slice.buffer.start() + slice.offset,
                        size: wgpu::BufferSize::new(slice.size),
                    };
                    (*number, resource)
                }
                Binding::Uniform(number, _) => match next_uniform.next() {
                    Some(uniform) => (*number, uniform.wgpu.as_entire_buffer_binding()),
                    None => bail!(Internal, "{}: a uniform is missing", pipeline.label),
                },
            };
            entries.push(wgpu::BindGroupEntry { binding: number, resource: wgpu::BindingResource::Buffer(resource) });
        }
        let wgpu = inner.wgpu.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(&pipeline.label),
            layout: &pipeline.layout.group,
            entries: &entries,
        });
        add(&inner.counters.bind_groups_created, 1);
        let group = Rc::new(BindGroup { wgpu, read_bytes, _uniforms: uniforms });
        inner.bind_groups.borrow_mut().groups.insert(key, group.clone(), 0);
        Ok(group)
    }
}

impl Inner {
    fn check_binding(&self, pipeline: &Pipeline, number: u32, slice: &BufferSlice) -> Result<()> {
        let limit = self.capabilities.max_storage_binding_size;
        if slice.size > limit {
            bail!(
                AdapterLimits,
                "{}: binding {number} is {} bytes and this adapter allows {limit} in one binding",
                pipeline.label,
                slice.size
            );
        }
        if !slice.offset.is_multiple_of(BINDING_ALIGNMENT) || slice.size == 0 {
            bail!(
                OutOfRange,
                "{}: binding {number} is {} bytes at {}; a binding begins at a multiple of {BINDING_ALIGNMENT} and is not empty",
                pipeline.label,
                slice.size,
                slice.offset
            );
        }
        self.check_slice(&pipeline.label, slice)
    }
}
