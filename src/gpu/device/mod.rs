//! The device: chooses an adapter, asks for what it has (features, largest limits), and collects what goes wrong.

mod faults;
mod probe;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use serde::Serialize;

use self::faults::Faults;
use super::BufferSlice;
use super::bind::BindGroupCache;
use super::buffer::BufferPool;
use super::pipeline::{Pipeline, PipelineCache};
use super::profile::Profiler;
use super::readback::StagingPool;
use super::recorder::Recorder;
use super::stats::{Counters, FlushReason, Stats};
use super::timeline::Timeline;
use super::uniform::UniformCache;
use super::write::StagedWrites;
use crate::error::Result;

/// Browsers demand `enable subgroups;` in WGSL, naga rejects it.
#[cfg(target_arch = "wasm32")]
pub(super) const ENABLE_SUBGROUPS_LINE: bool = true;
#[cfg(not(target_arch = "wasm32"))]
pub(super) const ENABLE_SUBGROUPS_LINE: bool = false;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerPreference {
    LowPower,
    #[default]
    HighPerformance,
}

/// How many entries caches keep; 0 keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    pub uniforms: usize,
    pub bind_groups: usize,
    /// Staging buffers for read-backs above 256 bytes.
    pub staging: usize,
}

impl Default for CacheSizes {
    fn default() -> Self {
        Self { uniforms: 512, bind_groups: 256, staging: 4 }
    }
}

#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    pub power_preference: PowerPreference,
    /// Take the software adapter.
    pub force_fallback_adapter: bool,
    /// Use no subgroups where there are some, to test and compare the kernels that do without.
    pub without_subgroups: bool,
    /// Take the kernels for software adapters (true) or those for GPUs (false), whatever the adapter is, to test both.
    pub software_kernels: Option<bool>,
    /// Use no packed dot products where there are some, to test the kernels that do without.
    pub without_packed_dot: bool,
    /// Use no more bytes of workgroup memory than these, to test the kernels of smaller adapters.
    pub workgroup_storage: Option<u32>,
    /// Bind no more bytes at once than these, to test what larger tensors come to on smaller adapters.
    pub storage_binding: Option<u64>,
    /// Submit each dispatch by itself, so that an error names its kernel.
    pub debug: bool,
    /// Submit after so many dispatches; 0 for no limit.
    pub max_batch: usize,
    pub caches: CacheSizes,
}

/// Which adapter runs, in the words of WebGPU's GPUAdapterInfo.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AdapterInfo {
    pub vendor: String,
    pub architecture: String,
    pub device: String,
    pub description: String,
    /// A software adapter.
    pub is_fallback: bool,
    /// The optional features that are switched on.
    pub features: Vec<String>,
    /// The products of small matrices that a subgroup computes at once, where the adapter offers them. No kernel takes them, and
    /// the feature is not switched on.
    pub subgroup_matrices: Vec<SubgroupMatrix>,
}

/// A product of matrices that a subgroup computes at once: [m, k] × [k, n], as the adapter's `subgroupMatrixConfigs` have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubgroupMatrix {
    /// Of the factors: `f16`, `i8` and so on.
    pub component: String,
    /// Of the product.
    pub result: String,
    pub m: u32,
    pub n: u32,
    pub k: u32,
}

/// What kernels may use and how large things may be.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    pub shader_f16: bool,
    /// The smallest and the largest number of lanes that a subgroup can have, where subgroups are there.
    pub subgroups: Option<(u32, u32)>,
    /// Shaders run on the CPU, where a workgroup barrier is dear and memory of a workgroup is no faster than any other.
    pub software: bool,
    /// WGSL's language feature `packed_4x8_integer_dot_product` is there.
    pub packed_dot: bool,
    pub timestamp_query: bool,
    /// The adapter offers products of matrices in subgroups (`AdapterInfo::subgroup_matrices`), an experiment of Chromium's that
    /// is not switched on.
    pub subgroup_matrix: bool,
    pub max_buffer_size: u64,
    pub max_storage_binding_size: u64,
    pub max_workgroups_per_dimension: u32,
    pub max_invocations_per_workgroup: u32,
    pub max_workgroup_storage_size: u32,
}

/// The WebGPU device and everything that is cached for it. Cloning clones the handle.
#[derive(Clone)]
pub struct Device(Rc<Inner>);

pub(super) struct Inner {
    this: Weak<Inner>,
    pub wgpu: wgpu::Device,
    pub queue: wgpu::Queue,
    pub adapter: AdapterInfo,
    pub capabilities: Capabilities,
    pub options: DeviceOptions,
    pub counters: Counters,
    pub timeline: Timeline,
    pub pool: RefCell<BufferPool>,
    pub staging: RefCell<StagingPool>,
    pub staged_writes: RefCell<StagedWrites>,
    pub pipelines: RefCell<PipelineCache>,
    pub bind_groups: RefCell<BindGroupCache>,
    pub uniforms: RefCell<UniformCache>,
    pub recorder: RefCell<Recorder>,
    pub profiler: RefCell<Profiler>,
    /// The kernels of the last submits, named in errors.
    pub last_kernels: RefCell<Vec<Rc<Pipeline>>>,
    faults: Faults,
    /// The application's device: it is shared, so never destroyed here.
    is_foreign: bool,
    disposed: Cell<bool>,
}

impl Device {
    /// Asks for an adapter and a device with every feature that kernels use and the adapter's largest limits.
    pub async fn request(options: &DeviceOptions) -> Result<Device> {
        let (device, queue, adapter) = request(options).await?;
        Self::new(device, queue, adapter, options, false).await
    }

    async fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        adapter: Adapter,
        options: &DeviceOptions,
        is_foreign: bool,
    ) -> Result<Device> {
        let mut capabilities = capabilities(&device, &adapter);
        if let Some((smallest, _)) = capabilities.subgroups
            && (options.without_subgroups || !probe::lanes_follow_indices(&device, &queue, smallest).await?)
        {
            capabilities.subgroups = None;
        }
        capabilities.software = options.software_kernels.unwrap_or(capabilities.software);
        capabilities.packed_dot &= !options.without_packed_dot;
        let storage = capabilities.max_workgroup_storage_size;
        let binding = capabilities.max_storage_binding_size;
        capabilities.max_storage_binding_size = options.storage_binding.map_or(binding, |most| most.min(binding));
        capabilities.max_workgroup_storage_size = options.workgroup_storage.map_or(storage, |most| most.min(storage));
        let mut features = Vec::new();
        for (name, on) in [
            ("shader-f16", capabilities.shader_f16),
            ("subgroups", capabilities.subgroups.is_some()),
            ("timestamp-query", capabilities.timestamp_query),
        ] {
            if on {
                features.push(name.to_owned());
            }
        }
        let faults = Faults::watch(&device, is_foreign);
        Ok(Device(Rc::new_cyclic(|this| Inner {
            this: this.clone(),
            wgpu: device,
            queue,
            adapter: AdapterInfo { features, ..adapter.info },
            capabilities,
            options: options.clone(),
            counters: Counters::default(),
            timeline: Timeline::default(),
            pool: RefCell::default(),
            staging: RefCell::new(StagingPool::new(options.caches.staging)),
            staged_writes: RefCell::default(),
            pipelines: RefCell::default(),
            bind_groups: RefCell::new(BindGroupCache::new(options.caches.bind_groups)),
            uniforms: RefCell::new(UniformCache::new(options.caches.uniforms)),
            recorder: RefCell::default(),
            profiler: RefCell::default(),
            last_kernels: RefCell::default(),
            faults,
            is_foreign,
            disposed: Cell::new(false),
        })))
    }

    pub fn adapter(&self) -> &AdapterInfo {
        &self.0.adapter
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    pub fn stats(&self) -> Stats {
        let inner = &self.0;
        Stats {
            pooled_bytes: inner.pooled_bytes(),
            uniforms: inner.uniforms.borrow().stats(),
            bind_groups: inner.bind_groups.borrow().stats(),
            pipelines: inner.pipelines.borrow().stats(),
            ..inner.counters.snapshot()
        }
    }

    pub fn reset_stats(&self) {
        self.0.counters.reset();
        self.0.uniforms.borrow_mut().reset_stats();
        self.0.bind_groups.borrow_mut().reset_stats();
        self.0.pipelines.borrow_mut().reset_stats();
    }

    /// Frees memory that waits for reuse until it is no more than `bytes`.
    pub fn trim_to(&self, bytes: u64) {
        self.0.shrink_pool(bytes);
    }

    /// Frees what the device keeps for reuse, such as after a model was dropped.
    pub fn trim(&self) {
        self.flush();
        self.0.shrink_pool(0);
    }

    /// Ends the device: submits what was recorded, then destroys it (an application's own device is left alive). What is in
    /// flight is rejected; later calls end in `disposed`.
    pub fn destroy(&self) {
        if self.0.disposed.get() {
            return;
        }
        self.0.flush(FlushReason::End);
        self.0.disposed.set(true);
        self.0.recorder.borrow_mut().clear();
        for staging in self.0.staging.borrow_mut().drain() {
            self.0.counters.buffer_destroyed(staging.size());
            staging.destroy();
        }
        self.0.shrink_pool(0);
        if !self.0.is_foreign {
            self.0.wgpu.destroy();
        }
    }

    pub(super) fn inner(&self) -> &Rc<Inner> {
        &self.0
    }
}

impl Inner {
    /// The device again, from inside of it.
    pub(super) fn handle(&self) -> Option<Device> {
        self.this.upgrade().map(Device)
    }

    /// An error when the device can't be used any more.
    pub(super) fn check_usable(&self) -> Result<()> {
        if self.disposed.get() {
            bail!(Disposed, "the GPU device was disposed of; request a new one, or load the model again");
        }
        self.faults.check_lost()
    }

    /// An error when a slice is not of this device or reaches out of its buffer.
    pub(super) fn check_slice(&self, what: &str, slice: &BufferSlice) -> Result<()> {
        if !self.this.upgrade().is_some_and(|this| slice.buffer.belongs_to(&this)) {
            bail!(WrongDevice, "{what}: the buffer was made on another device");
        }
        let size = slice.buffer.size();
        if slice.offset.checked_add(slice.size).is_none_or(|end| end > size) {
            bail!(OutOfRange, "{what}: {} bytes at {} of a buffer of {size}", slice.size, slice.offset);
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A browser frees the memory of a device only on `destroy` or at its garbage collector's leisure.
        if !self.disposed.get() && !self.is_foreign {
            self.wgpu.destroy();
        }
    }
}

/// What is known of the adapter before the device is there.
struct Adapter {
    info: AdapterInfo,
    subgroup_sizes: (u32, u32),
    subgroups: bool,
    packed_dot: bool,
}

fn capabilities(device: &wgpu::Device, adapter: &Adapter) -> Capabilities {
    let limits = device.limits();
    let features = device.features();
    Capabilities {
        shader_f16: features.contains(wgpu::Features::SHADER_F16),
        subgroups: adapter.subgroups.then_some(adapter.subgroup_sizes),
        software: adapter.info.is_fallback,
        packed_dot: adapter.packed_dot,
        timestamp_query: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        subgroup_matrix: !adapter.info.subgroup_matrices.is_empty(),
        max_buffer_size: limits.max_buffer_size,
        max_storage_binding_size: limits.max_storage_buffer_binding_size,
        max_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        max_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
        max_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
    }
}

/// Kernels bind up to this many storage buffers.
const STORAGE_BUFFERS: u32 = 8;

#[cfg(target_arch = "wasm32")]
mod browser;
#[cfg(target_arch = "wasm32")]
use browser::request;

#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(not(target_arch = "wasm32"))]
use native::request;

/// Lets callbacks run, and waits for them. A browser does that itself; natively nobody else polls the device.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn wait_for_callbacks(device: &wgpu::Device) {
    // A failed poll is a lost device, which the callbacks report.
    let _ = device.poll(wgpu::PollType::wait_indefinitely());
}

#[cfg(target_arch = "wasm32")]
pub(super) fn wait_for_callbacks(_: &wgpu::Device) {}
