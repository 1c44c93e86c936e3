//! The device in a browser, and the bridge that makes wgpu take in JavaScript's objects.
//!
//! wgpu 30's web backend silently drops the features it does not know (subgroups:
//! https://github.com/gfx-rs/wgpu/issues/10146), ignores the wish for a fallback adapter, has no asynchronous pipelines and can't
//! take in a device or a buffer that exists. So objects are made here with plain JavaScript calls, and handed to wgpu by letting
//! the method that wgpu calls answer with ours for the time of that one call ([`Answer`]). Each place can go when wgpu does it
//! itself.

use js_sys::{Array, Function, Object, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::error::Result;
use crate::gpu::adapter::{Adapter, AdapterInfo, STORAGE_BUFFERS, SubgroupMatrix};
use crate::gpu::compile::{BindingKind, Signature, Source};
use crate::gpu::cpu::IS_THERE;
use crate::gpu::faults::compilation_failed;
use crate::gpu::options::{DeviceOptions, PowerPreference};
use crate::gpu::raw::RawDevice;

fn get(object: &JsValue, key: &str) -> JsValue {
    Reflect::get(object, &key.into()).unwrap_or(JsValue::UNDEFINED)
}

fn set(object: &JsValue, key: &str, value: &JsValue) {
    // Setting a property fails only on frozen objects; callers check the result.
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

/// Whether a GPUSupportedFeatures or a WGSLLanguageFeatures holds a feature.
fn has(features: &JsValue, feature: &str) -> bool {
    let Ok(has) = get(features, "has").dyn_into::<Function>() else { return false };
    has.call1(features, &feature.into()).is_ok_and(|value| value.is_truthy())
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

/// Products of matrices in subgroups (Dawn, docs/dawn/features/subgroup_matrix.md). Only reported: no kernel uses them,
/// and an experimental feature is not requested without use.
const SUBGROUP_MATRIX: &str = "chromium-experimental-subgroup-matrix";

/// Whether the CPU is wanted if nobody says what: in the wasm that has it.
pub fn prefers_cpu() -> bool {
    IS_THERE
}

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
    let unavailable = |error: JsValue| err!(AdapterUnavailable, "requesting a GPU adapter failed: {}", message(&error));
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
    let has = |feature: &str| has(&available, feature);
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
    // Neither more features nor higher limits than the adapter's were asked for: it is gone, such as with the browser's GPU process.
    let refused = |error: JsValue| err!(AdapterUnavailable, "the adapter gave no device: {}", message(&error));
    let promise = call(&adapter, "requestDevice", &descriptor).map_err(refused)?;
    let raw = JsFuture::from(promise).await.map_err(refused)?;

    let (device, queue) = adopt(&gpu, &adapter, &raw).await?;
    let info = get(&adapter, "info");
    Ok((device, queue, describe(&gpu, &info, subgroups, has(SUBGROUP_MATRIX))))
}

/// `subgroupMatrixConfigs` of a GPUAdapterInfo: an iterable of objects whose fields are those of their prototype.
fn subgroup_matrices(info: &JsValue) -> Vec<SubgroupMatrix> {
    let configs = get(info, "subgroupMatrixConfigs");
    let Ok(Some(configs)) = js_sys::try_iter(&configs) else { return Vec::new() };
    let size = |config: &JsValue, key: &str| get(config, key).as_f64().unwrap_or(0.0) as u32;
    configs
        .filter_map(std::result::Result::ok)
        .map(|config| SubgroupMatrix {
            component: text(&config, "componentType"),
            result: text(&config, "resultComponentType"),
            m: size(&config, "M"),
            n: size(&config, "N"),
            k: size(&config, "K"),
        })
        .collect()
}

/// What a GPUAdapterInfo says, and which features of WGSL the browser has.
fn describe(gpu: &JsValue, info: &JsValue, subgroups: bool, subgroup_matrix: bool) -> Adapter {
    let number = |key: &str| get(info, key).as_f64().unwrap_or(0.0) as u32;
    let is_fallback = get(info, "isFallbackAdapter").is_truthy() || text(info, "architecture") == "swiftshader";
    Adapter {
        cpu: false,
        info: AdapterInfo {
            vendor: text(info, "vendor"),
            architecture: text(info, "architecture"),
            device: text(info, "device"),
            description: text(info, "description"),
            is_fallback,
            features: Vec::new(),
            subgroup_matrices: if subgroup_matrix { subgroup_matrices(info) } else { Vec::new() },
        },
        subgroup_sizes: (number("subgroupMinSize"), number("subgroupMaxSize")),
        // Without the sizes a kernel can't know how many lanes share a sum.
        subgroups: subgroups && number("subgroupMinSize") > 0,
        packed_dot: has(&get(gpu, "wgslLanguageFeatures"), "packed_4x8_integer_dot_product"),
        max_memory: None,
    }
}

/// Makes wgpu take in a GPUDevice: for the time of wgpu's two calls, which ask the browser before they return,
/// `requestAdapter` and `requestDevice` answer with ours.
async fn adopt(gpu: &JsValue, adapter: &JsValue, raw: &JsValue) -> Result<(wgpu::Device, wgpu::Queue)> {
    let place = known_place();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    drop(place);
    let replaced = Answer::put(gpu, "requestAdapter", Promise::resolve(adapter).into());
    let asked = instance.request_adapter(&wgpu::RequestAdapterOptions::default());
    drop(replaced);
    let wgpu_adapter =
        asked.await.map_err(|error| err!(AdapterUnavailable, "wgpu did not take the adapter: {error}"))?;
    let replaced = Answer::put(adapter, "requestDevice", Promise::resolve(raw).into());
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
            "wgpu made a device of its own; the bridge in gpu/platform/browser.rs needs a look at this wgpu version"
        );
    }
    Ok((device, queue))
}

/// wgpu looks for `navigator.gpu` in windows and workers only, and panics elsewhere. Node and Deno have it too: for them the global
/// scope passes for a worker's until this is dropped.
fn known_place() -> Option<GlobalName> {
    let global = js_sys::global();
    let is_known = ["Window", "WorkerGlobalScope"].iter().any(|name| !get(&global, name).is_undefined());
    (!is_known).then(|| {
        set(&global, GlobalName::NAME, &JsValue::TRUE);
        GlobalName
    })
}

struct GlobalName;

impl GlobalName {
    const NAME: &str = "WorkerGlobalScope";
}

impl Drop for GlobalName {
    fn drop(&mut self) {
        let _ = Reflect::delete_property(&js_sys::global(), &Self::NAME.into());
    }
}

/// A method of a JavaScript object that answers with a fixed value until this is dropped.
struct Answer<'a> {
    object: &'a JsValue,
    method: &'static str,
    _function: Closure<dyn Fn() -> JsValue>,
}

impl<'a> Answer<'a> {
    fn put(object: &'a JsValue, method: &'static str, value: JsValue) -> Self {
        let function = Closure::wrap(Box::new(move || value.clone()) as Box<dyn Fn() -> JsValue>);
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

/// Makes wgpu take in a GPUDevice that exists.
pub async fn take_in(raw: &JsValue) -> Result<(wgpu::Device, wgpu::Queue, Adapter)> {
    let gpu = get(&get(&js_sys::global(), "navigator"), "gpu");
    if gpu.is_undefined() || !get(raw, "createComputePipeline").is_function() {
        bail!(InvalidRequest, "device is no GPUDevice");
    }
    let storage_buffers = get(&get(raw, "limits"), "maxStorageBuffersPerShaderStage").as_f64().unwrap_or(0.0);
    if storage_buffers < f64::from(STORAGE_BUFFERS) {
        bail!(AdapterLimits, "kernels bind {STORAGE_BUFFERS} storage buffers and this device allows {storage_buffers}");
    }
    let (features, info) = (get(raw, "features"), get(raw, "adapterInfo"));
    // All that wgpu asks an adapter for.
    let adapter = Object::new();
    set(&adapter, "features", &features);
    set(&adapter, "limits", &get(raw, "limits"));
    set(&adapter, "info", &info);
    let (device, queue) = adopt(&gpu, &adapter, raw).await?;
    let adapter = describe(&gpu, &info, has(&features, "subgroups"), has(&features, SUBGROUP_MATRIX));
    Ok((device, queue, adapter))
}

/// Makes wgpu take in a GPUBuffer that exists, which must have the usage STORAGE.
pub fn take_in_buffer(device: &wgpu::Device, raw: &JsValue, label: &str) -> Result<wgpu::Buffer> {
    let (Some(size), Some(usage)) = (get(raw, "size").as_f64(), get(raw, "usage").as_f64()) else {
        bail!(InvalidRequest, "{label} is no GPUBuffer");
    };
    // The bits of GPUBufferUsage are wgpu's.
    let usage = wgpu::BufferUsages::from_bits_truncate(usage as u32);
    if !usage.contains(wgpu::BufferUsages::STORAGE) {
        bail!(InvalidRequest, "{label} lacks the usage STORAGE, which kernels need");
    }
    let size = size as u64;
    if size == 0 || !size.is_multiple_of(4) {
        bail!(OutOfRange, "{label} has {size} bytes, wanted a multiple of 4 above 0");
    }
    let object = object(device)?;
    let _answer = Answer::put(&object, "createBuffer", raw.clone());
    let buffer =
        device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false });
    Ok(buffer)
}

/// The GPUBuffer of a wgpu buffer.
pub fn given_out(buffer: &wgpu::Buffer) -> Result<JsValue> {
    match buffer.as_webgpu() {
        Some(buffer) => Ok(buffer.into()),
        None => {
            bail!(InvalidRequest, "it runs on the CPU, whose buffers are no GPUBuffers: load it with the device 'gpu'")
        }
    }
}

/// The pipeline of a source, compiled at once.
pub fn compile(device: &wgpu::Device, source: &Source) -> wgpu::ComputePipeline {
    source.compile(device)
}

/// A line for whoever debugs.
pub fn log(text: &str) {
    web_sys::console::debug_1(&text.into());
}

/// What becomes of a device that is dropped without being destroyed: a browser would free its memory at its garbage collector's leisure.
pub fn finish(raw: &RawDevice, _is_clean: bool) {
    raw.destroy();
}

/// How many modules are handed over at once while the page is to stay smooth.
const AT_ONCE: usize = 2;

/// Compiles pipelines, all at the same time and without blocking the page.
pub async fn compile_all(raw: &RawDevice, sources: &[&Source], is_paced: bool) -> Result<Vec<wgpu::ComputePipeline>> {
    // The CPU's device compiles nothing.
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let device = object(&raw.wgpu)?;
    let mut compiling = Vec::with_capacity(sources.len());
    for (index, source) in sources.iter().enumerate() {
        if is_paced && index > 0 && index.is_multiple_of(AT_ONCE) {
            // The browser's GPU process parses modules one after the other, and draws nothing meanwhile. Now it gets a chance to.
            raw.work_done().await;
        }
        let (module, promise) = start_compiling(raw, &device, source)?;
        // A future of wasm-bindgen handles a rejection also if nobody waits for it any more.
        compiling.push((module, JsFuture::from(promise)));
    }
    let mut compiled = Vec::with_capacity(sources.len());
    for (source, (module, pipeline)) in sources.iter().zip(compiling) {
        let pipeline = match pipeline.await {
            Ok(pipeline) => pipeline,
            Err(error) => {
                raw.check_usable()?;
                return Err(compilation_failed(&source.label, &explain(&module, &source.text, &error).await));
            }
        };
        let _module = Answer::put(&device, "createShaderModule", module);
        let _pipeline = Answer::put(&device, "createComputePipeline", pipeline);
        compiled.push(source.compile(&raw.wgpu));
    }
    Ok(compiled)
}

/// The GPUDevice of wgpu's device.
pub fn object(device: &wgpu::Device) -> Result<JsValue> {
    match device.as_webgpu() {
        Some(device) => {
            let device: &JsValue = device.as_ref();
            Ok(device.clone())
        }
        None => bail!(InvalidRequest, "it runs on the CPU, which has no GPUDevice: load it with the device 'gpu'"),
    }
}

/// Writes a range of a JavaScript array to a buffer at `offset`; unless that is the CPU's, the bytes never enter the wasm heap.
pub fn write(
    queue: &wgpu::Queue,
    target: &wgpu::Buffer,
    offset: u64,
    bytes: &js_sys::Uint8Array,
    range: std::ops::Range<usize>,
) -> Result<()> {
    let (Some(queue), Some(target)) = (queue.as_webgpu(), target.as_webgpu()) else {
        let bytes = bytes.subarray(range.start as u32, range.end as u32).to_vec();
        queue.write_buffer(target, offset, &bytes);
        return Ok(());
    };
    let queue: &JsValue = queue.as_ref();
    let queue: &JsQueue = queue.unchecked_ref();
    let (start, length) = (range.start as f64, range.len() as f64);
    queue
        .write_buffer(target.as_ref(), offset as f64, bytes, start, length)
        .map_err(|error| err!(GpuValidation, "writing to a GPU buffer failed: {}", message(&error)))
}

/// Starts an asynchronous compilation: the module and the promise of the pipeline.
fn start_compiling(device: &RawDevice, raw: &JsValue, source: &Source) -> Result<(JsValue, Promise)> {
    let make = |method: &str, descriptor: &Object| -> Result<JsValue> {
        let function = get(raw, method).dyn_into::<Function>();
        let made = function.and_then(|function| function.call1(raw, descriptor));
        made.map_err(|error| compilation_failed(&source.label, &message(&error)))
    };
    let descriptor = Object::new();
    set(&descriptor, "label", &source.label.as_str().into());
    set(&descriptor, "code", &source.text.as_str().into());
    // The pipeline's promise reports the same error; here it would be taken for a later call's.
    let scope = device.wgpu.push_error_scope(wgpu::ErrorFilter::Validation);
    let module = make("createShaderModule", &descriptor);
    drop(scope.pop());
    let module = module?;

    let compute = Object::new();
    set(&compute, "module", &module);
    set(&compute, "entryPoint", &"main".into());
    let descriptor = Object::new();
    set(&descriptor, "label", &source.label.as_str().into());
    set(&descriptor, "layout", &pipeline_layout(&make, &source.signature)?);
    set(&descriptor, "compute", &compute);
    let promise = make("createComputePipelineAsync", &descriptor)?;
    match promise.dyn_into::<Promise>() {
        Ok(promise) => Ok((module, promise)),
        Err(_) => bail!(Internal, "createComputePipelineAsync gave no promise"),
    }
}

/// A pipeline layout of the same bindings as wgpu's; WebGPU treats layouts with equal contents as equal.
fn pipeline_layout(make: &dyn Fn(&str, &Object) -> Result<JsValue>, signature: &Signature) -> Result<JsValue> {
    let entries: Array = signature
        .iter()
        .map(|(binding, kind)| {
            let buffer = Object::new();
            let kind = match kind {
                BindingKind::Read => "read-only-storage",
                BindingKind::ReadWrite => "storage",
                BindingKind::Uniform => "uniform",
            };
            set(&buffer, "type", &kind.into());
            let entry = Object::new();
            set(&entry, "binding", &(*binding).into());
            // GPUShaderStage.COMPUTE
            set(&entry, "visibility", &4.into());
            set(&entry, "buffer", &buffer);
            JsValue::from(entry)
        })
        .collect();
    let descriptor = Object::new();
    set(&descriptor, "entries", &entries);
    let group = make("createBindGroupLayout", &descriptor)?;
    let descriptor = Object::new();
    set(&descriptor, "bindGroupLayouts", &Array::of1(&group));
    make("createPipelineLayout", &descriptor)
}

/// Why a pipeline was refused: the compiler's messages with their lines of the source, or else what the browser says.
async fn explain(module: &JsValue, source: &str, error: &JsValue) -> String {
    let asked = get(module, "getCompilationInfo").dyn_into::<Function>().and_then(|ask| ask.call0(module));
    let mut lines = Vec::new();
    if let Ok(Ok(promise)) = asked.map(JsCast::dyn_into::<Promise>)
        && let Ok(info) = JsFuture::from(promise).await
        && let Ok(messages) = get(&info, "messages").dyn_into::<Array>()
    {
        for entry in messages.iter().filter(|entry| text(entry, "type") == "error") {
            let number = |key: &str| get(&entry, key).as_f64().unwrap_or(0.0);
            let line = source.lines().nth((number("lineNum") as usize).saturating_sub(1)).unwrap_or_default();
            let at = format!("line {}:{}", number("lineNum"), number("linePos"));
            lines.push(format!("{at}: {}\n    {}", text(&entry, "message"), line.trim()));
        }
    }
    if lines.is_empty() { message(error) } else { lines.join("\n") }
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
