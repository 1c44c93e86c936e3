//! The device: chooses an adapter, asks for what it has (features, largest limits), and collects what goes wrong.
//!
//! In a browser the GPUDevice is requested here with plain JavaScript calls and handed to wgpu, because wgpu 30's web
//! backend silently drops the features it does not know (subgroups: https://github.com/gfx-rs/wgpu/issues/10146), ignores
//! the wish for a fallback adapter and can't take in an existing device. The bridge is `request_in_browser`; it can go
//! when wgpu does these itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use super::bind::BindGroupCache;
use super::buffer::BufferPool;
use super::pipeline::{Pipeline, PipelineCache};
use super::readback::StagingPool;
use super::recorder::Recorder;
use super::stats::{Counters, Stats, add};
use super::uniform::UniformCache;
use super::{Buffer, BufferSlice};
use crate::error::{Code, Error, Result};

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

#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    pub power_preference: PowerPreference,
    /// Take the software adapter.
    pub force_fallback_adapter: bool,
    /// Use no subgroups where there are some, to test and compare the kernels that do without.
    pub without_subgroups: bool,
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
}

/// What kernels may use and how large things may be.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    pub shader_f16: bool,
    /// The smallest and the largest number of lanes that a subgroup can have, where subgroups are there.
    pub subgroups: Option<(u32, u32)>,
    pub timestamp_query: bool,
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
    pub wgpu: wgpu::Device,
    pub queue: wgpu::Queue,
    pub adapter: AdapterInfo,
    pub capabilities: Capabilities,
    pub counters: Counters,
    pub pool: RefCell<BufferPool>,
    pub staging: RefCell<StagingPool>,
    pub pipelines: RefCell<PipelineCache>,
    pub bind_groups: RefCell<BindGroupCache>,
    pub uniforms: RefCell<UniformCache>,
    pub recorder: RefCell<Recorder>,
    /// The kernels of the last submits, named in errors.
    pub last_kernels: RefCell<Vec<Rc<Pipeline>>>,
    faults: Arc<Mutex<Faults>>,
    /// Compilations whose outcome is not known yet.
    compilations: RefCell<Vec<LocalBoxFuture<'static, Option<Error>>>>,
    disposed: Cell<bool>,
}

/// What went wrong since it was last asked. WebGPU reports it some time after the call at fault.
#[derive(Default)]
struct Faults {
    first: Option<Error>,
    lost: Option<String>,
}

impl Device {
    /// Asks for an adapter and a device with every feature that kernels use and the adapter's largest limits.
    pub async fn request(options: &DeviceOptions) -> Result<Device> {
        let (device, queue, adapter) = request(options).await?;
        let mut capabilities = capabilities(&device, &adapter);
        if options.without_subgroups {
            capabilities.subgroups = None;
        }
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
        let faults = Arc::new(Mutex::new(Faults::default()));
        let sink = faults.clone();
        device.on_uncaptured_error(Arc::new(move |error| {
            if let Ok(mut faults) = sink.lock() {
                faults.first.get_or_insert_with(|| typed(error));
            }
        }));
        let sink = faults.clone();
        device.set_device_lost_callback(move |_, reason| {
            if let Ok(mut faults) = sink.lock() {
                faults.lost = Some(reason);
            }
        });
        Ok(Device(Rc::new(Inner {
            wgpu: device,
            queue,
            adapter: AdapterInfo { features, ..adapter.info },
            capabilities,
            counters: Counters::default(),
            pool: RefCell::default(),
            staging: RefCell::default(),
            pipelines: RefCell::default(),
            bind_groups: RefCell::default(),
            uniforms: RefCell::default(),
            recorder: RefCell::default(),
            last_kernels: RefCell::default(),
            faults,
            compilations: RefCell::default(),
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
        inner.counters.snapshot(
            inner.uniforms.borrow().stats(),
            inner.bind_groups.borrow().stats(),
            inner.pipelines.borrow().stats(),
        )
    }

    pub fn reset_stats(&self) {
        self.0.counters.reset();
        self.0.uniforms.borrow_mut().reset_stats();
        self.0.bind_groups.borrow_mut().reset_stats();
        self.0.pipelines.borrow_mut().reset_stats();
    }

    /// Writes bytes to a buffer, after all commands recorded so far. Offset and length are multiples of 4.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_write(buffer, offset, bytes.len() as u64)?;
        self.flush();
        self.0.queue.write_buffer(buffer.wgpu(), offset, bytes);
        Ok(())
    }

    fn check_write(&self, buffer: &Buffer, offset: u64, length: u64) -> Result<()> {
        self.0.check_usable()?;
        if !offset.is_multiple_of(4) || !length.is_multiple_of(4) || offset + length > buffer.size() {
            bail!(
                Internal,
                "a write of {length} bytes at {offset} to a buffer of {}: both must be multiples of 4 and fit",
                buffer.size()
            );
        }
        add(&self.0.counters.bytes_uploaded, length);
        Ok(())
    }

    /// Records a copy of a slice to the start of another buffer's range.
    pub fn copy_buffer(&self, source: &BufferSlice, target: &BufferSlice) {
        self.copy(source, target.buffer.wgpu(), target.offset);
    }

    /// Frees what the device keeps for reuse, such as after a model was dropped.
    pub fn trim(&self) {
        self.flush();
        self.0.empty_pool();
    }

    /// Destroys the device. What is in flight is rejected; later calls end in `disposed`.
    pub fn destroy(&self) {
        if self.0.disposed.replace(true) {
            return;
        }
        self.0.recorder.borrow_mut().clear();
        for staging in self.0.staging.borrow_mut().drain() {
            staging.destroy();
        }
        self.0.wgpu.destroy();
    }

    pub(super) fn inner(&self) -> &Rc<Inner> {
        &self.0
    }

    /// Runs `compile` and keeps watch on what it compiles: the next wait reports what went wrong, by the shader's name.
    pub(super) fn watch_compilation<T>(&self, label: &str, compile: impl FnOnce() -> T) -> T {
        let scope = self.0.wgpu.push_error_scope(wgpu::ErrorFilter::Validation);
        let compiled = compile();
        let outcome = scope.pop();
        let label = label.to_owned();
        self.0.compilations.borrow_mut().push(Box::pin(async move {
            let error = outcome.await?;
            Some(err!(ShaderCompilation, "the kernel {label} was not accepted: {error}"))
        }));
        compiled
    }
}

impl Inner {
    /// An error when the device can't be used any more.
    pub(super) fn check_usable(&self) -> Result<()> {
        if self.disposed.get() {
            bail!(Disposed, "the GPU device was disposed of; load the model again");
        }
        match self.faults.lock() {
            Ok(faults) => match &faults.lost {
                Some(reason) => Err(lost(reason)),
                None => Ok(()),
            },
            Err(_) => Ok(()),
        }
    }

    /// The first thing that went wrong since the last wait, if any.
    pub(super) async fn take_fault(&self) -> Result<()> {
        let compilations = std::mem::take(&mut *self.compilations.borrow_mut());
        let mut failed = None;
        for compilation in compilations {
            let error = compilation.await;
            failed = failed.or(error);
        }
        if failed.is_some() {
            // The submit that used the broken pipeline is an error as well; it arrives before a wait that starts now ends,
            // and must not be taken for one of a later call.
            self.work_done().await;
        }
        self.check_usable()?;
        let fault = self.faults.lock().ok().and_then(|mut faults| faults.first.take());
        match (failed, fault) {
            (Some(error), _) => Err(error),
            (None, Some(error)) => {
                let kernels = self.last_kernels.borrow();
                let names: Vec<&str> = kernels.iter().map(|pipeline| pipeline.label()).collect();
                Err(Error::new(error.code(), format!("{} (last kernels: {})", error.message(), names.join(", "))))
            }
            (None, None) => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A browser frees the memory of a device only on `destroy` or at its garbage collector's leisure.
        if !self.disposed.get() {
            self.wgpu.destroy();
        }
    }
}

fn lost(reason: &str) -> Error {
    let reason = if reason.is_empty() { "no reason given" } else { reason };
    err!(DeviceLost, "the GPU device was lost ({reason}); load the model again")
}

fn typed(error: wgpu::Error) -> Error {
    let code = match &error {
        wgpu::Error::OutOfMemory { .. } => Code::OutOfMemory,
        wgpu::Error::Validation { .. } => Code::GpuValidation,
        wgpu::Error::Internal { .. } => Code::Internal,
    };
    Error::new(code, format!("the GPU reported: {error}"))
}

/// What is known of the adapter before the device is there.
struct Adapter {
    info: AdapterInfo,
    subgroup_sizes: (u32, u32),
    subgroups: bool,
}

fn capabilities(device: &wgpu::Device, adapter: &Adapter) -> Capabilities {
    let limits = device.limits();
    let features = device.features();
    Capabilities {
        shader_f16: features.contains(wgpu::Features::SHADER_F16),
        subgroups: adapter.subgroups.then_some(adapter.subgroup_sizes),
        timestamp_query: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        max_buffer_size: limits.max_buffer_size,
        max_storage_binding_size: limits.max_storage_buffer_binding_size,
        max_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        max_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
        max_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
    }
}

/// Kernels bind up to this many storage buffers.
const STORAGE_BUFFERS: u32 = 8;

#[cfg(not(target_arch = "wasm32"))]
async fn request(options: &DeviceOptions) -> Result<(wgpu::Device, wgpu::Queue, Adapter)> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = instance
        .request_adapter(&wgpu::RequestAdapterOptions {
            power_preference: match options.power_preference {
                PowerPreference::LowPower => wgpu::PowerPreference::LowPower,
                PowerPreference::HighPerformance => wgpu::PowerPreference::HighPerformance,
            },
            force_fallback_adapter: options.force_fallback_adapter,
            ..Default::default()
        })
        .await
        .map_err(|error| err!(AdapterUnavailable, "no GPU adapter: {error}"))?;
    let wanted = wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY;
    let info = adapter.get_info();
    let features = adapter.features() & wanted;
    let (device, queue) = adapter
        .request_device(&wgpu::DeviceDescriptor {
            label: Some("rillm"),
            required_features: features,
            required_limits: adapter.limits(),
            ..Default::default()
        })
        .await
        .map_err(|error| err!(AdapterLimits, "the adapter gave no device: {error}"))?;
    let limit = device.limits().max_storage_buffers_per_shader_stage;
    if limit < STORAGE_BUFFERS {
        bail!(AdapterLimits, "kernels bind {STORAGE_BUFFERS} storage buffers and this adapter allows {limit}");
    }
    let adapter = Adapter {
        info: AdapterInfo {
            vendor: format!("{:#06x}", info.vendor),
            architecture: info.driver.clone(),
            device: format!("{:#06x}", info.device),
            description: info.name.clone(),
            is_fallback: info.device_type == wgpu::DeviceType::Cpu,
            features: Vec::new(),
        },
        subgroup_sizes: (info.subgroup_min_size, info.subgroup_max_size),
        subgroups: features.contains(wgpu::Features::SUBGROUP),
    };
    Ok((device, queue, adapter))
}

#[cfg(target_arch = "wasm32")]
use in_browser::request;

#[cfg(target_arch = "wasm32")]
mod in_browser {
    use js_sys::{Array, Function, Object, Promise, Reflect};
    use wasm_bindgen::prelude::*;
    use wasm_bindgen_futures::JsFuture;

    use super::*;

    fn get(object: &JsValue, key: &str) -> JsValue {
        Reflect::get(object, &key.into()).unwrap_or(JsValue::UNDEFINED)
    }

    fn set(object: &JsValue, key: &str, value: &JsValue) {
        // Setting a property fails only on frozen objects; callers check what came of it.
        let _ = Reflect::set(object, &key.into(), value);
    }

    fn call(object: &JsValue, method: &str, argument: &JsValue) -> Result<Promise, JsValue> {
        get(object, method).dyn_into::<Function>()?.call1(object, argument)?.dyn_into::<Promise>()
    }

    fn text(object: &JsValue, key: &str) -> String {
        get(object, key).as_string().unwrap_or_default()
    }

    fn message(error: &JsValue) -> String {
        get(error, "message").as_string().unwrap_or_else(|| format!("{error:?}"))
    }

    /// The limits that kernels profit from; each is asked for at the adapter's maximum.
    const LIMITS: [&str; 9] = [
        "maxBufferSize",
        "maxStorageBufferBindingSize",
        "maxStorageBuffersPerShaderStage",
        "maxComputeWorkgroupsPerDimension",
        "maxComputeInvocationsPerWorkgroup",
        "maxComputeWorkgroupSizeX",
        "maxComputeWorkgroupSizeY",
        "maxComputeWorkgroupStorageSize",
        "maxUniformBufferBindingSize",
    ];

    const FEATURES: [&str; 3] = ["shader-f16", "subgroups", "timestamp-query"];

    pub async fn request(options: &DeviceOptions) -> Result<(wgpu::Device, wgpu::Queue, Adapter)> {
        let gpu = get(&get(&js_sys::global(), "navigator"), "gpu");
        if gpu.is_undefined() || gpu.is_null() {
            bail!(
                WebgpuUnavailable,
                "this browser has no WebGPU (navigator.gpu is missing); use a current Chrome, Edge, Firefox or Safari, on \
                 a page served by https or from localhost"
            );
        }
        let wish = Object::new();
        let preference = match options.power_preference {
            PowerPreference::LowPower => "low-power",
            PowerPreference::HighPerformance => "high-performance",
        };
        set(&wish, "powerPreference", &preference.into());
        if options.force_fallback_adapter {
            set(&wish, "forceFallbackAdapter", &true.into());
        }
        let unavailable =
            |error: JsValue| err!(AdapterUnavailable, "requesting a GPU adapter failed: {}", message(&error));
        let promise = call(&gpu, "requestAdapter", &wish).map_err(unavailable)?;
        let adapter = JsFuture::from(promise).await.map_err(unavailable)?;
        if adapter.is_null() || adapter.is_undefined() {
            bail!(
                AdapterUnavailable,
                "WebGPU is there, but it offers no adapter: the GPU or its driver is on the browser's block list, or \
                 hardware acceleration is off in the browser's settings"
            );
        }

        let available = get(&adapter, "features");
        let has = |feature: &str| {
            let Ok(has) = get(&available, "has").dyn_into::<Function>() else { return false };
            has.call1(&available, &feature.into()).is_ok_and(|value| value.is_truthy())
        };
        let features: Array = FEATURES.iter().filter(|feature| has(feature)).map(|name| JsValue::from(*name)).collect();
        let subgroups = has("subgroups");
        let adapter_limits = get(&adapter, "limits");
        let limits = Object::new();
        for name in LIMITS {
            set(&limits, name, &get(&adapter_limits, name));
        }
        let storage_buffers = get(&adapter_limits, "maxStorageBuffersPerShaderStage").as_f64().unwrap_or(0.0);
        if storage_buffers < f64::from(STORAGE_BUFFERS) {
            bail!(
                AdapterLimits,
                "kernels bind {STORAGE_BUFFERS} storage buffers and this adapter allows {storage_buffers}"
            );
        }
        let descriptor = Object::new();
        set(&descriptor, "label", &"rillm".into());
        set(&descriptor, "requiredFeatures", &features);
        set(&descriptor, "requiredLimits", &limits);
        let refused = |error: JsValue| err!(AdapterLimits, "the adapter gave no device: {}", message(&error));
        let promise = call(&adapter, "requestDevice", &descriptor).map_err(refused)?;
        let raw = JsFuture::from(promise).await.map_err(refused)?;

        let (device, queue) = adopt(&gpu, &adapter, &raw).await?;
        let info = get(&adapter, "info");
        let number = |key: &str| get(&info, key).as_f64().unwrap_or(0.0) as u32;
        let is_fallback = get(&info, "isFallbackAdapter").is_truthy()
            || get(&adapter, "isFallbackAdapter").is_truthy()
            || text(&info, "architecture") == "swiftshader";
        let adapter = Adapter {
            info: AdapterInfo {
                vendor: text(&info, "vendor"),
                architecture: text(&info, "architecture"),
                device: text(&info, "device"),
                description: text(&info, "description"),
                is_fallback,
                features: Vec::new(),
            },
            subgroup_sizes: (number("subgroupMinSize"), number("subgroupMaxSize")),
            // Without the sizes a kernel can't know how many lanes share a sum.
            subgroups: subgroups && number("subgroupMinSize") > 0,
        };
        Ok((device, queue, adapter))
    }

    /// Makes wgpu take in a GPUDevice: for the time of wgpu's two calls, which ask the browser before they return,
    /// `requestAdapter` and `requestDevice` answer with ours.
    async fn adopt(gpu: &JsValue, adapter: &JsValue, raw: &JsValue) -> Result<(wgpu::Device, wgpu::Queue)> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let replaced = Answer::put(gpu, "requestAdapter", adapter);
        let asked = instance.request_adapter(&wgpu::RequestAdapterOptions::default());
        drop(replaced);
        let wgpu_adapter =
            asked.await.map_err(|error| err!(AdapterUnavailable, "wgpu did not take the adapter: {error}"))?;
        let replaced = Answer::put(adapter, "requestDevice", raw);
        let asked = wgpu_adapter.request_device(&wgpu::DeviceDescriptor::default());
        drop(replaced);
        let (device, queue) = asked.await.map_err(|error| err!(Internal, "wgpu did not take the device: {error}"))?;
        let taken = device.as_webgpu().is_some_and(|device| {
            let device: &JsValue = device.as_ref();
            Object::is(device, raw)
        });
        if !taken {
            bail!(
                Internal,
                "wgpu made a device of its own; the bridge in gpu/device.rs needs a look at this wgpu version"
            );
        }
        Ok((device, queue))
    }

    /// A method of a JavaScript object that answers with a fixed promise until this is dropped.
    struct Answer<'a> {
        object: &'a JsValue,
        method: &'static str,
        _function: Closure<dyn Fn() -> Promise>,
    }

    impl<'a> Answer<'a> {
        fn put(object: &'a JsValue, method: &'static str, value: &JsValue) -> Self {
            let promise = Promise::resolve(value);
            let function = Closure::wrap(Box::new(move || promise.clone()) as Box<dyn Fn() -> Promise>);
            // An own property hides the method of the prototype.
            set(object, method, function.as_ref());
            Self { object, method, _function: function }
        }
    }

    impl Drop for Answer<'_> {
        fn drop(&mut self) {
            let object: &Object = self.object.unchecked_ref();
            let _ = Reflect::delete_property(object, &self.method.into());
        }
    }

    impl Device {
        /// Writes a range of a JavaScript array to a buffer; the bytes never enter the wasm heap.
        pub fn write_js(
            &self,
            buffer: &Buffer,
            offset: u64,
            bytes: &js_sys::Uint8Array,
            range: std::ops::Range<usize>,
        ) -> Result<()> {
            self.check_write(buffer, offset, range.len() as u64)?;
            self.flush();
            let (Some(queue), Some(target)) = (self.0.queue.as_webgpu(), buffer.wgpu().as_webgpu()) else {
                bail!(Internal, "the queue is not a browser's");
            };
            let queue: &JsValue = queue.as_ref();
            let queue: &JsQueue = queue.unchecked_ref();
            let (start, length) = (range.start as f64, range.len() as f64);
            queue
                .write_buffer(target.as_ref(), offset as f64, bytes, start, length)
                .map_err(|error| err!(GpuValidation, "writing to a GPU buffer failed: {}", message(&error)))
        }
    }

    #[wasm_bindgen]
    extern "C" {
        type JsQueue;

        #[wasm_bindgen(method, catch, js_name = writeBuffer)]
        fn write_buffer(
            this: &JsQueue,
            buffer: &JsValue,
            offset: f64,
            data: &js_sys::Uint8Array,
            start: f64,
            length: f64,
        ) -> Result<(), JsValue>;
    }
}
