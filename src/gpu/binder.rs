//! The bind group that the bindings of a dispatch come to.

use std::rc::Rc;

use super::bind_groups::{BindGroup, BindGroups, Key};
use super::binding::Binding;
use super::buffer::{BINDING_ALIGNMENT, BufferSlice};
use super::pipeline::Pipeline;
use super::pool::BufferPool;
use super::raw::RawDevice;
use super::stats::add;
use super::uniform::Uniforms;
use crate::error::Result;

/// Makes bind groups, and keeps them and the uniforms in them.
pub(super) struct Binder {
    raw: Rc<RawDevice>,
    pool: Rc<BufferPool>,
    pub groups: Rc<BindGroups>,
    pub uniforms: Uniforms,
}

impl Binder {
    /// `groups` are those that `pool` has buffers forgotten by.
    pub fn new(raw: Rc<RawDevice>, pool: Rc<BufferPool>, groups: Rc<BindGroups>) -> Self {
        let uniforms = Uniforms::new(raw.clone(), raw.options.caches.uniforms);
        Self { raw, pool, groups, uniforms }
    }

    /// The bind group of these bindings for a pipeline made with the same signature.
    pub fn bind_group(&self, pipeline: &Pipeline, bindings: &[Binding<'_>]) -> Result<Rc<BindGroup>> {
        let mut uniforms = Vec::new();
        let mut key = Key { layout: pipeline.layout.id, entries: Vec::with_capacity(bindings.len()) };
        for binding in bindings {
            match binding {
                Binding::Read(number, slice) | Binding::ReadWrite(number, slice) => {
                    self.check_binding(pipeline, *number, slice)?;
                    let start = slice.buffer.start() + slice.offset;
                    key.entries.push((*number, slice.buffer.id().unwrap_or(0), start, slice.size));
                }
                Binding::Uniform(number, bytes) => {
                    let uniform = self.uniforms.get(bytes);
                    key.entries.push((*number, uniform.id, 0, bytes.len() as u64));
                    uniforms.push(uniform);
                }
            }
        }
        if let Some(group) = self.groups.get(&key) {
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
                    None => bail!(Internal, "{}: a uniform is missing", pipeline.label()),
                },
            };
            entries.push(wgpu::BindGroupEntry { binding: number, resource: wgpu::BindingResource::Buffer(resource) });
        }
        let wgpu = self.raw.wgpu.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(pipeline.label()),
            layout: &pipeline.layout.group,
            entries: &entries,
        });
        add(&self.raw.counters.bind_groups_created, 1);
        let group = Rc::new(BindGroup { wgpu, read_bytes, _uniforms: uniforms });
        self.groups.insert(key, group.clone());
        Ok(group)
    }

    fn check_binding(&self, pipeline: &Pipeline, number: u32, slice: &BufferSlice) -> Result<()> {
        let limit = self.raw.capabilities.max_storage_binding_size;
        if slice.size > limit {
            bail!(
                AdapterLimits,
                "{}: binding {number} is {} bytes and this adapter allows {limit} in one binding",
                pipeline.label(),
                slice.size
            );
        }
        if !slice.offset.is_multiple_of(BINDING_ALIGNMENT) || slice.size == 0 {
            bail!(
                OutOfRange,
                "{}: binding {number} is {} bytes at {}; a binding begins at a multiple of {BINDING_ALIGNMENT} and is not empty",
                pipeline.label(),
                slice.size,
                slice.offset
            );
        }
        slice.check(pipeline.label(), &self.pool)
    }
}
