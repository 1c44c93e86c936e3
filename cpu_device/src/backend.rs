//! wgpu's interface. What no part of the runtime asks for, such as textures, is not there.

use std::fmt;
use std::future::ready;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wgpu::custom::*;

use super::callbacks::Callbacks;
use super::commands::{Command, Commands, Kernel};
use super::errors::Errors;
use super::kernel::{Bound, CpuKernel, Lent, Problem};
use super::memory::Memory;
use super::team::Team;

/// What the objects of a device share.
#[derive(Default)]
pub struct Shared {
    errors: Errors,
    callbacks: Callbacks,
    on_lost: Mutex<Option<BoxDeviceLostCallback>>,
    is_destroyed: AtomicBool,
    /// The function of the next pipeline.
    announced: Mutex<Option<Kernel>>,
    team: Option<Arc<dyn Team>>,
    /// The next buffer is in the team's memory.
    next_is_of_team: AtomicBool,
}

impl Shared {
    pub fn new(team: Option<Arc<dyn Team>>) -> Self {
        Self { team, ..Self::default() }
    }
}

macro_rules! debug {
    ($($type:ident),*) => {
        $(impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($type))
            }
        })*
    };
}

debug!(CpuDevice, CpuQueue, CpuBuffer, CpuBindGroup, CpuPass);

/// The device.
pub struct CpuDevice(Arc<Shared>);

pub struct CpuQueue(Arc<Shared>);

#[derive(Debug)]
struct CpuModule;

#[derive(Debug)]
struct CpuPipelineLayout;

/// Of each binding that is no uniform, whether it is written.
#[derive(Debug)]
struct CpuLayout(Vec<(u32, bool)>);

struct CpuBindGroup(Arc<[Bound]>);

#[derive(Debug)]
struct CpuPipeline(Kernel);

struct CpuBuffer {
    shared: Arc<Shared>,
    memory: Memory,
}

#[derive(Debug)]
struct CpuEncoder(Commands);

struct CpuPass {
    commands: Commands,
    kernel: Option<Kernel>,
    bound: Option<Arc<[Bound]>>,
}

#[derive(Debug)]
struct CpuCommandBuffer(Commands);

#[derive(Debug)]
struct CpuMapped(Vec<u8>);

/// For what is not part of a CPU's device.
fn absent(what: &str) -> ! {
    unreachable!("a CPU's device has no {what}")
}

impl CpuDevice {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Tells which function the next pipeline runs.
    pub fn announce(&self, kernel: Arc<dyn CpuKernel>) {
        *self.0.announced.lock().unwrap_or_else(PoisonError::into_inner) = Some(Kernel(kernel));
    }

    /// Tells where the next buffer is.
    pub fn next_is_of_team(&self) {
        self.0.next_is_of_team.store(true, Ordering::Relaxed);
    }
}

impl CpuQueue {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

/// All limits are those of an address.
fn limits() -> wgpu::Limits {
    let most = usize::MAX as u64 >> 1;
    wgpu::Limits {
        max_buffer_size: most,
        max_storage_buffer_binding_size: most,
        max_compute_workgroups_per_dimension: u32::MAX,
        max_compute_invocations_per_workgroup: 256,
        max_compute_workgroup_storage_size: 16 << 10,
        ..wgpu::Limits::default()
    }
}

#[expect(unsafe_code, reason = "wgpu declares methods as unsafe of which none is here")]
impl DeviceInterface for CpuDevice {
    fn features(&self) -> wgpu::Features {
        wgpu::Features::empty()
    }

    fn limits(&self) -> wgpu::Limits {
        limits()
    }

    fn adapter_info(&self) -> wgpu::AdapterInfo {
        wgpu::AdapterInfo::new(wgpu::DeviceType::Cpu, wgpu::Backend::Noop)
    }

    fn create_shader_module(
        &self,
        _: wgpu::ShaderModuleDescriptor<'_>,
        _: wgpu::ShaderRuntimeChecks,
    ) -> DispatchShaderModule {
        DispatchShaderModule::custom(CpuModule)
    }

    fn create_bind_group_layout(&self, layout: &wgpu::BindGroupLayoutDescriptor<'_>) -> DispatchBindGroupLayout {
        let bindings = layout.entries.iter().filter_map(|entry| match entry.ty {
            wgpu::BindingType::Buffer { ty: wgpu::BufferBindingType::Storage { read_only }, .. } => {
                Some((entry.binding, !read_only))
            }
            _ => None,
        });
        DispatchBindGroupLayout::custom(CpuLayout(bindings.collect()))
    }

    fn create_bind_group(&self, group: &wgpu::BindGroupDescriptor<'_>) -> DispatchBindGroup {
        let Some(CpuLayout(layout)) = group.layout.as_custom() else { absent("layouts of a GPU") };
        let mut numbered = Vec::with_capacity(layout.len());
        for entry in group.entries {
            let written = layout.iter().find(|(number, _)| *number == entry.binding);
            if let (Some((number, is_written)), wgpu::BindingResource::Buffer(binding)) = (written, &entry.resource)
                && let Some(buffer) = binding.buffer.as_custom::<CpuBuffer>()
            {
                let size = binding.size.map_or(binding.buffer.size() - binding.offset, u64::from);
                let range = binding.offset as usize..(binding.offset + size) as usize;
                numbered.push((*number, Bound { memory: buffer.memory.clone(), range, is_written: *is_written }));
            }
        }
        numbered.sort_by_key(|(number, _)| *number);
        DispatchBindGroup::custom(CpuBindGroup(numbered.into_iter().map(|(_, bound)| bound).collect()))
    }

    fn create_pipeline_layout(&self, _: &wgpu::PipelineLayoutDescriptor<'_>) -> DispatchPipelineLayout {
        DispatchPipelineLayout::custom(CpuPipelineLayout)
    }

    fn create_compute_pipeline(&self, pipeline: &wgpu::ComputePipelineDescriptor<'_>) -> DispatchComputePipeline {
        let announced = self.0.announced.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kernel = announced.unwrap_or_else(|| {
            let name = pipeline.label.unwrap_or("a shader");
            self.0.errors.report_invalid(format!("the CPU does not run shaders, and {name} is one"));
            Kernel(Arc::new(Shader(name.to_owned())))
        });
        DispatchComputePipeline::custom(CpuPipeline(kernel))
    }

    fn create_buffer(&self, buffer: &wgpu::BufferDescriptor<'_>) -> DispatchBuffer {
        let is_of_team = self.0.next_is_of_team.swap(false, Ordering::Relaxed);
        let team = self.0.team.as_ref().filter(|_| is_of_team);
        let memory = if buffer.usage.is_empty() {
            self.0.errors.report_invalid("a buffer without usages".to_owned());
            Memory::none()
        } else {
            let made = match team {
                Some(team) => Memory::of_team(team, buffer.size),
                None => Memory::new(buffer.size),
            };
            made.unwrap_or_else(|| {
                self.0.errors.report_no_room("there is no room in memory");
                Memory::none()
            })
        };
        DispatchBuffer::custom(CpuBuffer { shared: self.0.clone(), memory })
    }

    fn create_command_encoder(&self, _: &wgpu::CommandEncoderDescriptor<'_>) -> DispatchCommandEncoder {
        DispatchCommandEncoder::custom(CpuEncoder(Commands::default()))
    }

    fn set_device_lost_callback(&self, callback: BoxDeviceLostCallback) {
        *self.0.on_lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(callback);
    }

    fn on_uncaptured_error(&self, handler: Arc<dyn wgpu::UncapturedErrorHandler>) {
        self.0.errors.set_handler(handler);
    }

    fn push_error_scope(&self, filter: wgpu::ErrorFilter) -> u32 {
        self.0.errors.push(filter)
    }

    fn pop_error_scope(&self, number: u32) -> Pin<Box<dyn PopErrorScopeFuture>> {
        Box::pin(ready(self.0.errors.pop(number)))
    }

    fn poll(&self, _: wgpu::wgt::PollType<u64>) -> Result<wgpu::PollStatus, wgpu::PollError> {
        self.0.callbacks.poll();
        Ok(wgpu::PollStatus::QueueEmpty)
    }

    fn destroy(&self) {
        if self.0.is_destroyed.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(on_lost) = self.0.on_lost.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.0.callbacks.push(Box::new(move || on_lost(wgpu::DeviceLostReason::Destroyed, String::new())));
        }
    }

    fn get_internal_counters(&self) -> wgpu::InternalCounters {
        wgpu::InternalCounters::default()
    }

    fn generate_allocator_report(&self) -> Option<wgpu::AllocatorReport> {
        None
    }

    fn create_query_set(&self, _: &wgpu::QuerySetDescriptor<'_>) -> DispatchQuerySet {
        absent("timestamps")
    }

    unsafe fn create_shader_module_passthrough(
        &self,
        _: &wgpu::ShaderModuleDescriptorPassthrough<'_>,
    ) -> DispatchShaderModule {
        absent("shaders")
    }

    fn create_render_pipeline(&self, _: &wgpu::RenderPipelineDescriptor<'_>) -> DispatchRenderPipeline {
        absent("render pipelines")
    }

    fn create_mesh_pipeline(&self, _: &wgpu::MeshPipelineDescriptor<'_>) -> DispatchRenderPipeline {
        absent("render pipelines")
    }

    unsafe fn create_pipeline_cache(&self, _: &wgpu::PipelineCacheDescriptor<'_>) -> DispatchPipelineCache {
        absent("cache of pipelines")
    }

    fn create_texture(&self, _: &wgpu::TextureDescriptor<'_>) -> DispatchTexture {
        absent("textures")
    }

    fn create_external_texture(
        &self,
        _: &wgpu::ExternalTextureDescriptor<'_>,
        _: &[&wgpu::TextureView],
    ) -> DispatchExternalTexture {
        absent("textures")
    }

    fn create_blas(
        &self,
        _: &wgpu::CreateBlasDescriptor<'_>,
        _: wgpu::BlasGeometrySizeDescriptors,
    ) -> (Option<u64>, DispatchBlas) {
        absent("acceleration structures")
    }

    fn create_tlas(&self, _: &wgpu::CreateTlasDescriptor<'_>) -> DispatchTlas {
        absent("acceleration structures")
    }

    fn create_sampler(&self, _: &wgpu::SamplerDescriptor<'_>) -> DispatchSampler {
        absent("samplers")
    }

    fn create_render_bundle_encoder(&self, _: &wgpu::RenderBundleEncoderDescriptor<'_>) -> DispatchRenderBundleEncoder {
        absent("render bundles")
    }

    unsafe fn start_graphics_debugger_capture(&self) {}

    unsafe fn stop_graphics_debugger_capture(&self) {}
}

/// What a pipeline of a shader does.
struct Shader(String);

impl CpuKernel for Shader {
    fn run(&self, _: Vec<Lent<'_>>, _: Option<&Arc<dyn Team>>) -> Result<(), Problem> {
        Err(format!("the CPU does not run shaders, and {} is one", self.0).into())
    }
}

impl QueueInterface for CpuQueue {
    fn write_buffer(&self, buffer: &DispatchBuffer, offset: u64, data: &[u8]) {
        let Some(buffer) = buffer.as_custom::<CpuBuffer>() else { absent("buffers of a GPU") };
        let at = offset as usize;
        match buffer.memory.lock().part_mut(at..at + data.len()) {
            Some(bytes) => bytes.copy_from_slice(data),
            None => {
                self.0.errors.report_invalid(format!("a write of {} bytes at {at} past a buffer's end", data.len()))
            }
        }
    }

    /// What is submitted runs now. After an error the rest runs too, as on a GPU.
    fn submit(&self, submitted: &mut dyn Iterator<Item = DispatchCommandBuffer>) -> u64 {
        for commands in submitted {
            let Some(CpuCommandBuffer(commands)) = commands.as_custom() else { absent("commands of a GPU") };
            for command in commands.take() {
                if self.0.is_destroyed.load(Ordering::Relaxed) {
                    continue;
                }
                match command.run(self.0.team.as_ref()) {
                    Ok(()) => {}
                    Err(Problem::NoRoom(what)) => self.0.errors.report_no_room(&what),
                    Err(Problem::Invalid(what)) => self.0.errors.report_invalid(what),
                }
            }
        }
        0
    }

    fn on_submitted_work_done(&self, callback: BoxSubmittedWorkDoneCallback) {
        self.0.callbacks.push(callback);
    }

    fn get_timestamp_period(&self) -> f32 {
        1.0
    }

    fn create_staging_buffer(&self, _: wgpu::BufferSize) -> Option<DispatchQueueWriteBuffer> {
        None
    }

    fn validate_write_buffer(&self, _: &DispatchBuffer, _: u64, _: wgpu::BufferSize) -> Option<()> {
        None
    }

    fn write_staging_buffer(&self, _: &DispatchBuffer, _: u64, _: &DispatchQueueWriteBuffer) {}

    fn write_texture(
        &self,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: &[u8],
        _: wgpu::TexelCopyBufferLayout,
        _: wgpu::Extent3d,
    ) {
        absent("textures")
    }

    #[cfg(target_arch = "wasm32")]
    fn copy_external_image_to_texture(
        &self,
        _: &wgpu::CopyExternalImageSourceInfo,
        _: wgpu::CopyExternalImageDestInfo<&wgpu::Texture>,
        _: wgpu::Extent3d,
    ) {
        absent("textures")
    }

    fn compact_blas(&self, _: &DispatchBlas) -> (Option<u64>, DispatchBlas) {
        absent("acceleration structures")
    }

    fn present(&self, _: &DispatchSurfaceOutputDetail) {
        absent("surfaces")
    }
}

impl ShaderModuleInterface for CpuModule {
    fn get_compilation_info(&self) -> Pin<Box<dyn ShaderCompilationInfoFuture>> {
        Box::pin(ready(wgpu::CompilationInfo { messages: Vec::new() }))
    }
}

impl BindGroupLayoutInterface for CpuLayout {}

impl BindGroupInterface for CpuBindGroup {}

impl PipelineLayoutInterface for CpuPipelineLayout {}

impl ComputePipelineInterface for CpuPipeline {
    fn get_bind_group_layout(&self, _: u32) -> DispatchBindGroupLayout {
        absent("layouts that follow from shaders")
    }
}

impl CommandBufferInterface for CpuCommandBuffer {}

impl BufferInterface for CpuBuffer {
    fn map_async(&self, _: wgpu::MapMode, _: Range<u64>, callback: BufferMapCallback) {
        let shared = self.shared.clone();
        self.shared.callbacks.push(Box::new(move || {
            let is_there = !shared.is_destroyed.load(Ordering::Relaxed);
            callback(if is_there { Ok(()) } else { Err(wgpu::BufferAsyncError) });
        }));
    }

    fn get_mapped_range(&self, range: Range<u64>) -> Result<DispatchBufferMappedRange, wgpu::MapRangeError> {
        let locked = self.memory.lock();
        // wgpu has checked the range; a buffer without memory gives nothing.
        let bytes = locked.bytes().get(range.start as usize..range.end as usize).unwrap_or_default();
        Ok(DispatchBufferMappedRange::custom(CpuMapped(bytes.to_vec())))
    }

    fn unmap(&self) {}

    fn destroy(&self) {
        self.memory.free();
    }
}

#[expect(unsafe_code, reason = "wgpu declares as unsafe what is safe here")]
impl BufferMappedRangeInterface for CpuMapped {
    fn len(&self) -> usize {
        self.0.len()
    }

    unsafe fn read_slice(&self) -> &[u8] {
        &self.0
    }

    unsafe fn write_slice(&mut self) -> wgpu::WriteOnly<'_, [u8]> {
        absent("mappings to write")
    }

    #[cfg(target_arch = "wasm32")]
    fn as_uint8array(&self) -> &js_sys::Uint8Array {
        absent("mappings in JavaScript")
    }
}

impl CommandEncoderInterface for CpuEncoder {
    fn copy_buffer_to_buffer(
        &self,
        source: &DispatchBuffer,
        source_offset: u64,
        target: &DispatchBuffer,
        target_offset: u64,
        size: Option<u64>,
    ) {
        let (Some(source), Some(target)) = (source.as_custom::<CpuBuffer>(), target.as_custom::<CpuBuffer>()) else {
            absent("buffers of a GPU")
        };
        let from = source_offset as usize;
        let size = size.map_or_else(|| source.memory.lock().bytes().len() - from, |size| size as usize);
        self.0.push(Command::Copy {
            source: source.memory.clone(),
            from: from..from + size,
            target: target.memory.clone(),
            at: target_offset as usize,
        });
    }

    fn begin_compute_pass(&self, _: &wgpu::ComputePassDescriptor<'_>) -> DispatchComputePass {
        DispatchComputePass::custom(CpuPass { commands: self.0.clone(), kernel: None, bound: None })
    }

    fn finish(&mut self) -> DispatchCommandBuffer {
        DispatchCommandBuffer::custom(CpuCommandBuffer(self.0.clone()))
    }

    fn copy_buffer_to_texture(
        &self,
        _: wgpu::TexelCopyBufferInfo<'_>,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::Extent3d,
    ) {
        absent("textures")
    }

    fn copy_texture_to_buffer(
        &self,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::TexelCopyBufferInfo<'_>,
        _: wgpu::Extent3d,
    ) {
        absent("textures")
    }

    fn copy_texture_to_texture(
        &self,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::TexelCopyTextureInfo<'_>,
        _: wgpu::Extent3d,
    ) {
        absent("textures")
    }

    fn begin_render_pass(&self, _: &wgpu::RenderPassDescriptor<'_>) -> DispatchRenderPass {
        absent("render passes")
    }

    fn clear_texture(&self, _: &DispatchTexture, _: &wgpu::ImageSubresourceRange) {
        absent("textures")
    }

    fn clear_buffer(&self, _: &DispatchBuffer, _: u64, _: Option<u64>) {
        absent("clearing of buffers")
    }

    fn insert_debug_marker(&self, _: &str) {}

    fn push_debug_group(&self, _: &str) {}

    fn pop_debug_group(&self) {}

    fn write_timestamp(&self, _: &DispatchQuerySet, _: u32) {
        absent("timestamps")
    }

    fn resolve_query_set(&self, _: &DispatchQuerySet, _: u32, _: u32, _: &DispatchBuffer, _: u64) {
        absent("timestamps")
    }

    fn mark_acceleration_structures_built<'a>(
        &self,
        _: &mut dyn Iterator<Item = &'a wgpu::Blas>,
        _: &mut dyn Iterator<Item = &'a wgpu::Tlas>,
    ) {
        absent("acceleration structures")
    }

    fn build_acceleration_structures<'a>(
        &self,
        _: &mut dyn Iterator<Item = &'a wgpu::BlasBuildEntry<'a>>,
        _: &mut dyn Iterator<Item = &'a wgpu::Tlas>,
    ) {
        absent("acceleration structures")
    }

    fn transition_resources<'a>(
        &mut self,
        _: &mut dyn Iterator<Item = wgpu::wgt::BufferTransition<&'a DispatchBuffer>>,
        _: &mut dyn Iterator<Item = wgpu::wgt::TextureTransition<&'a DispatchTexture>>,
    ) {
    }
}

impl ComputePassInterface for CpuPass {
    fn set_pipeline(&mut self, pipeline: &DispatchComputePipeline) {
        let Some(CpuPipeline(kernel)) = pipeline.as_custom() else { absent("pipelines of a GPU") };
        self.kernel = Some(kernel.clone());
    }

    fn set_bind_group(&mut self, _: u32, group: Option<&DispatchBindGroup>, _: &[u32]) {
        let Some(CpuBindGroup(bound)) = group.and_then(|group| group.as_custom()) else {
            absent("bind groups of a GPU")
        };
        self.bound = Some(bound.clone());
    }

    fn dispatch_workgroups(&mut self, _: u32, _: u32, _: u32) {
        if let (Some(kernel), Some(bound)) = (&self.kernel, &self.bound) {
            self.commands.push(Command::Dispatch { kernel: kernel.clone(), bound: bound.clone() });
        }
    }

    fn set_immediates(&mut self, _: u32, _: &[u8]) {
        absent("immediates")
    }

    fn insert_debug_marker(&mut self, _: &str) {}

    fn push_debug_group(&mut self, _: &str) {}

    fn pop_debug_group(&mut self) {}

    fn write_timestamp(&mut self, _: &DispatchQuerySet, _: u32) {
        absent("timestamps")
    }

    fn begin_pipeline_statistics_query(&mut self, _: &DispatchQuerySet, _: u32) {
        absent("statistics")
    }

    fn end_pipeline_statistics_query(&mut self) {
        absent("statistics")
    }

    fn dispatch_workgroups_indirect(&mut self, _: &DispatchBuffer, _: u64) {
        absent("indirect dispatches")
    }

    fn transition_resources<'a>(
        &mut self,
        _: &mut dyn Iterator<Item = wgpu::wgt::BufferTransition<&'a DispatchBuffer>>,
        _: &mut dyn Iterator<Item = wgpu::wgt::TextureTransition<&'a DispatchTextureView>>,
    ) {
    }
}

impl Drop for CpuPass {
    fn drop(&mut self) {}
}
