//! A GPU device's bindings for JavaScript. Tensors and kernels are numbers there: `pkg-template/src/gpu` has classes for them.
//!
//! Asynchronous calls record their commands before they return the promise, so that calls take effect in program order.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use futures_util::FutureExt;
use js_sys::{Array, Promise, Uint8Array};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use super::bytes::JsBytes;
use super::convert::{from_js, js_error, to_js};
use super::gpu_batch::WasmBatch;
use crate::error::{Error, Result};
use crate::gpu::{
    Binding, Buffer, BufferSlice, CacheSizes, Device, DeviceOptions, Grid, HostBytes, MemoryStats, Pipeline,
    RecordedReadback, Shader, Template,
};
use crate::tensor::{Batch, Context, DType, Desc, Shape, ShapeCache, Tensor, ops};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Options {
    /// The GPUDevice belongs to the application.
    shared: bool,
    debug: bool,
    caches: Caches,
    max_batch_size: usize,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Caches {
    uniforms: Option<usize>,
    bind_groups: Option<usize>,
    shapes: Option<usize>,
    staging: Option<usize>,
}

/// The description of a tensor for JavaScript.
#[derive(Serialize)]
struct TensorInfo<'a> {
    shape: &'a [usize],
    dtype: &'static str,
}

#[derive(Serialize)]
struct Memory {
    tensors: usize,
    tensor_bytes: u64,
    #[serde(flatten)]
    device: MemoryStats,
}

/// The description of a binding from JavaScript.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    ReadWrite,
    Uniform,
}

struct Kernel {
    label: String,
    wgsl: String,
    bindings: Vec<Kind>,
    /// Once it is compiled.
    pipeline: OnceCell<Rc<Pipeline>>,
}

/// A dispatch of a kernel of the caller's.
pub(super) struct Dispatch {
    kernel: Rc<Kernel>,
    /// The numbers of its tensors, in the order of the bindings.
    pub tensors: Vec<u32>,
    uniforms: Vec<Vec<u8>>,
    grid: Grid,
}

/// The tensors and kernels of one device, by their numbers.
pub(super) struct Registry {
    pub context: Context,
    tensors: RefCell<HashMap<u32, Tensor>>,
    kernels: RefCell<HashMap<u32, Rc<Kernel>>>,
    last_id: Cell<u32>,
    shapes: RefCell<ShapeCache>,
    /// Those that were not disposed of.
    pub batches: RefCell<HashMap<u32, Weak<RefCell<Option<Batch>>>>>,
}

#[wasm_bindgen]
pub struct WasmGpu {
    registry: Rc<Registry>,
}

#[wasm_bindgen]
impl WasmGpu {
    pub async fn adopt(device: JsValue, options: JsValue) -> Result<WasmGpu, JsValue> {
        let adopt = async {
            let options: Options = from_js("the options of the device", options)?;
            let (shared, shapes) = (options.shared, options.caches.shapes.unwrap_or(ShapeCache::DEFAULT_LIMIT));
            let sizes = CacheSizes::default();
            let options = DeviceOptions {
                debug: options.debug,
                max_batch: options.max_batch_size,
                caches: CacheSizes {
                    uniforms: options.caches.uniforms.unwrap_or(sizes.uniforms),
                    bind_groups: options.caches.bind_groups.unwrap_or(sizes.bind_groups),
                    staging: options.caches.staging.unwrap_or(sizes.staging),
                },
                ..DeviceOptions::default()
            };
            let device =
                if shared { Device::adopt(&device, &options).await? } else { Device::own(&device, &options).await? };
            let context = Context::new(device);
            let registry = Registry {
                context,
                tensors: RefCell::default(),
                kernels: RefCell::default(),
                last_id: Cell::default(),
                shapes: RefCell::new(ShapeCache::new(shapes)),
                batches: RefCell::default(),
            };
            Ok(WasmGpu { registry: Rc::new(registry) })
        };
        adopt.await.map_err(js_error)
    }

    /// The number of a shape. It is valid while the shape is kept.
    pub fn shape(&self, dims: &[u32]) -> Result<u32, JsValue> {
        let dims: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
        self.registry.shapes.borrow_mut().intern(&dims).map_err(js_error)
    }

    pub fn tensor(&self, bytes: Uint8Array, shape: u32, dtype: &str) -> Result<u32, JsValue> {
        let make = || Ok(self.registry.insert(self.registry.upload(bytes, shape, dtype)?));
        make().map_err(js_error)
    }

    pub fn fill(&self, shape: u32, dtype: &str, value: u32) -> Result<u32, JsValue> {
        let fill = || Ok(self.registry.insert(self.registry.fill(shape, dtype, value)?));
        fill().map_err(js_error)
    }

    pub fn rand(&self, shape: u32, seed_high: u32, seed_low: u32) -> Result<u32, JsValue> {
        let make = || {
            let desc = self.registry.desc(shape, "f32")?;
            let seed = u64::from(seed_high) << 32 | u64::from(seed_low);
            let tensor = self.registry.context.run1(&ops::Random { shape: desc.shape, seed }, &[])?;
            Ok(self.registry.insert(tensor))
        };
        make().map_err(js_error)
    }

    #[wasm_bindgen(js_name = importBuffer)]
    pub fn import_buffer(&self, buffer: JsValue, shape: u32, dtype: &str) -> Result<u32, JsValue> {
        let make = || {
            let context = &self.registry.context;
            let desc = self.registry.desc(shape, dtype)?;
            let buffer = context.device().import_buffer(&buffer, "the imported buffer")?;
            Ok(self.registry.insert(context.tensor_from_buffer(desc, buffer)?))
        };
        make().map_err(js_error)
    }

    pub fn describe(&self, tensor: u32) -> Result<JsValue, JsValue> {
        describe(self.registry.tensor(tensor).map_err(js_error)?.desc())
    }

    pub fn write(&self, tensor: u32, first: usize, bytes: Uint8Array) -> Result<(), JsValue> {
        let write = || self.registry.write(&self.registry.tensor(tensor)?, first, bytes);
        write().map_err(js_error)
    }

    /// A copy of rows `start..end` of the first dimension.
    pub fn slice(&self, tensor: u32, start: usize, end: usize) -> Result<u32, JsValue> {
        self.registry.slice(tensor, start, end).map_err(js_error)
    }

    #[wasm_bindgen(js_name = disposeTensor)]
    pub fn dispose_tensor(&self, tensor: u32) {
        self.registry.tensors.borrow_mut().remove(&tensor);
    }

    /// Compiles a kernel and resolves to its number.
    pub fn kernel(
        &self,
        label: String,
        wgsl: String,
        bindings: Vec<String>,
        workgroup: &[u32],
    ) -> Result<Promise, JsValue> {
        let kernel = Kernel::new(label, wgsl, &bindings, workgroup).map_err(js_error)?;
        let registry = self.registry.clone();
        Ok(future_to_promise(async move {
            registry.compile(&kernel).await.map_err(js_error)?;
            let id = registry.next_id();
            registry.kernels.borrow_mut().insert(id, Rc::new(kernel));
            Ok(id.into())
        }))
    }

    /// Records a dispatch; the bindings are numbers of tensors and, for uniforms, bytes.
    pub fn dispatch(&self, kernel: u32, bindings: Array, grid: &[u32]) -> Result<(), JsValue> {
        let dispatch = || {
            let dispatch = self.registry.dispatch_of(kernel, &bindings, grid)?;
            let tensors = dispatch.tensors.iter().map(|tensor| self.registry.tensor(*tensor));
            self.registry.dispatch(&dispatch, &tensors.collect::<Result<Vec<Tensor>>>()?)
        };
        dispatch().map_err(js_error)
    }

    pub fn batch(&self) -> WasmBatch {
        WasmBatch::new(self.registry.clone())
    }

    /// How many dispatches and copies wait to be submitted.
    pub fn pending(&self) -> usize {
        self.registry.context.device().pending()
    }

    #[wasm_bindgen(js_name = setMaxBatchSize)]
    pub fn set_max_batch_size(&self, most: usize) {
        self.registry.context.device().set_max_batch(most);
    }

    #[wasm_bindgen(js_name = setLazyMode)]
    pub fn set_lazy_mode(&self, on: bool) {
        self.registry.context.device().set_lazy(on);
    }

    /// Copies all elements of a tensor to another one, from its element `first` on.
    #[wasm_bindgen(js_name = copyTensor)]
    pub fn copy_tensor(&self, from: u32, to: u32, first: usize) -> Result<(), JsValue> {
        self.registry.copy(from, to, first).map_err(js_error)
    }

    /// The GPUBuffer of a tensor and its first byte there.
    #[wasm_bindgen(js_name = tensorBuffer)]
    pub fn tensor_buffer(&self, tensor: u32) -> Result<Array, JsValue> {
        let export = || self.registry.context.device().export_slice(&self.registry.tensor(tensor)?.slice());
        let (buffer, offset) = export().map_err(js_error)?;
        Ok(Array::of(&[buffer, (offset as f64).into()]))
    }

    pub fn flush(&self) -> Result<(), JsValue> {
        self.registry.context.device().flush();
        Ok(())
    }

    pub fn sync(&self) -> Promise {
        self.registry.sync()
    }

    /// One `Uint8Array` for each of the tensors.
    pub fn readback(&self, tensors: &[u32]) -> Result<Promise, JsValue> {
        let start = || {
            let tensors =
                tensors.iter().map(|tensor| self.registry.tensor(*tensor)).collect::<Result<Vec<Tensor>>>()?;
            self.registry.start_readback(&tensors)
        };
        start().map_err(js_error)
    }

    /// Records the copies of tensors, to be read later.
    #[wasm_bindgen(js_name = recordReadback)]
    pub fn record_readback(&self, tensors: &[u32]) -> Result<WasmReadback, JsValue> {
        let record = || {
            let tensors = tensors.iter().map(|tensor| self.registry.tensor(*tensor));
            self.registry.record_readback(&tensors.collect::<Result<Vec<Tensor>>>()?)
        };
        let recorded = record().map_err(js_error)?;
        Ok(WasmReadback { registry: self.registry.clone(), recorded: RefCell::new(Some(recorded)) })
    }

    #[wasm_bindgen(js_name = setProfiling)]
    pub fn set_profiling(&self, on: bool) -> Result<(), JsValue> {
        self.registry.context.device().set_profiling(on).map_err(js_error)
    }

    #[wasm_bindgen(js_name = kernelTimes)]
    pub async fn kernel_times(&self) -> Result<JsValue, JsValue> {
        let times = self.registry.context.device().kernel_times().await.map_err(js_error)?;
        to_js(&times)
    }

    pub fn stats(&self) -> Result<JsValue, JsValue> {
        to_js(&self.registry.context.device().stats())
    }

    #[wasm_bindgen(js_name = resetStats)]
    pub fn reset_stats(&self) {
        self.registry.context.device().reset_stats();
    }

    #[wasm_bindgen(js_name = memoryStats)]
    pub fn memory_stats(&self) -> Result<JsValue, JsValue> {
        let tensors = self.registry.tensors.borrow();
        to_js(&Memory {
            tensors: tensors.len(),
            tensor_bytes: tensors.values().map(Tensor::bytes).sum(),
            device: self.registry.context.device().memory(),
        })
    }

    /// Frees what waits for reuse.
    pub fn trim(&self) {
        self.registry.context.device().trim();
    }

    pub fn destroy(&self) {
        self.registry.tensors.borrow_mut().clear();
        self.registry.kernels.borrow_mut().clear();
        for batch in self.registry.batches.take().values().filter_map(Weak::upgrade) {
            batch.take();
        }
        self.registry.context.device().destroy();
    }
}

/// A read-back whose copies are recorded.
#[wasm_bindgen]
pub struct WasmReadback {
    registry: Rc<Registry>,
    /// `None` once it was started.
    recorded: RefCell<Option<RecordedReadback>>,
}

#[wasm_bindgen]
impl WasmReadback {
    /// One `Uint8Array` for each of the tensors. Once only.
    pub fn start(&self) -> Result<Promise, JsValue> {
        let start = || match self.recorded.take() {
            Some(recorded) => self.registry.start_recorded(recorded),
            None => bail!(Internal, "a read-back was started twice"),
        };
        start().map_err(js_error)
    }
}

impl Registry {
    pub fn next_id(&self) -> u32 {
        self.last_id.set(self.last_id.get() + 1);
        self.last_id.get()
    }

    pub fn insert(&self, tensor: Tensor) -> u32 {
        let id = self.next_id();
        self.tensors.borrow_mut().insert(id, tensor);
        id
    }

    pub fn tensor(&self, id: u32) -> Result<Tensor> {
        self.tensors.borrow().get(&id).cloned().ok_or_else(|| err!(Disposed, "the tensor was disposed of"))
    }

    /// A shape and dtype as JavaScript names them, if a binding can hold such a tensor.
    fn desc(&self, shape: u32, dtype: &str) -> Result<Desc> {
        let dtype = match dtype {
            "f32" => DType::F32,
            "u32" => DType::U32,
            _ => bail!(DtypeMismatch, "a tensor is of dtype f32 or u32, not {dtype}"),
        };
        let shape = self.shapes.borrow().shape(shape)?;
        let dims = shape.dims();
        // Before anything is multiplied in the 32 bits of a wasm address.
        let bytes = dims.iter().try_fold(4u64, |bytes, dim| bytes.checked_mul(*dim as u64));
        let limit = self.context.device().capabilities().max_storage_binding_size.min(u64::from(u32::MAX));
        match bytes {
            Some(0) => bail!(ShapeMismatch, "{shape}: each dimension is at least 1"),
            Some(bytes) if bytes <= limit => {}
            _ => bail!(AdapterLimits, "a tensor {shape} does not fit the {limit} bytes that a binding may have here"),
        }
        Ok(Desc { shape, dtype })
    }

    pub fn upload(&self, bytes: Uint8Array, shape: u32, dtype: &str) -> Result<Tensor> {
        let desc = self.desc(shape, dtype)?;
        if bytes.length() as usize != desc.shape.elements() * 4 {
            bail!(ShapeMismatch, "{} bytes are not the elements of {}", bytes.length(), desc.shape);
        }
        let tensor = self.context.empty(desc, "tensor")?;
        self.write(&tensor, 0, bytes)?;
        Ok(tensor)
    }

    /// Small writes go through the wasm heap, to be staged; the bytes of larger ones never do.
    fn write(&self, tensor: &Tensor, first: usize, bytes: Uint8Array) -> Result<()> {
        let (length, elements) = (bytes.length() as usize, tensor.shape().elements());
        if !length.is_multiple_of(4) || first.checked_add(length / 4).is_none_or(|end| end > elements) {
            bail!(ShapeMismatch, "{length} bytes from element {first} don't fit a tensor of {elements} elements");
        }
        let device = self.context.device();
        match length {
            0..=4096 => self.context.write(tensor, first, &bytes.to_vec()),
            _ => JsBytes::new(bytes).write_to_buffer(0..length, device, &tensor.slice().buffer, first as u64 * 4),
        }
    }

    pub fn fill(&self, shape: u32, dtype: &str, value: u32) -> Result<Tensor> {
        let desc = self.desc(shape, dtype)?;
        let tensor = match desc.dtype {
            // Zero has zero bits in all dtypes.
            _ if value == 0 => {
                let zeros = self.context.run1(&ops::Fill { shape: desc.shape, value: 0.0 }, &[])?;
                self.context.tensor_from_buffer(desc, zeros.slice().buffer)?
            }
            DType::F32 => self.context.run1(&ops::Fill { shape: desc.shape, value: value as f32 }, &[])?,
            // The kernel's number is an f32. The bits of a small integer would be a denormal, which GPUs may flush to zero.
            _ => {
                const PIECE: usize = 1 << 18;
                let tensor = self.context.empty(desc, "tensor")?;
                let elements = desc.shape.elements();
                let piece = value.to_le_bytes().repeat(PIECE.min(elements));
                for first in (0..elements).step_by(PIECE) {
                    self.context.write(&tensor, first, &piece[..PIECE.min(elements - first) * 4])?;
                }
                tensor
            }
        };
        Ok(tensor)
    }

    fn slice(&self, tensor: u32, start: usize, end: usize) -> Result<u32> {
        let tensor = self.tensor(tensor)?;
        let shape = tensor.shape();
        let mut dims = shape.dims().to_vec();
        if start >= end || dims.first().is_none_or(|rows| end > *rows) {
            bail!(OutOfRange, "the slice {start} to {end} is not a range of the rows of {shape}");
        }
        dims[0] = end - start;
        let desc = Desc { shape: Shape::new(&dims), dtype: tensor.dtype() };
        let target = self.context.empty(desc, "slice")?;
        let row_bytes = tensor.bytes() / shape.dims()[0] as u64;
        let source = BufferSlice {
            buffer: tensor.slice().buffer,
            offset: start as u64 * row_bytes,
            size: (end - start) as u64 * row_bytes,
        };
        self.context.device().copy(&source, &target.slice())?;
        Ok(self.insert(target))
    }

    fn copy(&self, from: u32, to: u32, first: usize) -> Result<()> {
        let (from, to) = (self.tensor(from)?, self.tensor(to)?);
        let (count, room) = (from.shape().elements(), to.shape().elements());
        if from.dtype() != to.dtype() {
            bail!(DtypeMismatch, "copyFrom: {} into {}", from.dtype().name(), to.dtype().name());
        }
        if first.checked_add(count).is_none_or(|end| end > room) {
            bail!(OutOfRange, "copyFrom: {count} elements from element {first} don't fit a tensor of {room} elements");
        }
        let part = |tensor: &Tensor, first: usize| BufferSlice {
            offset: tensor.slice().offset + 4 * first as u64,
            size: 4 * count as u64,
            ..tensor.slice()
        };
        self.context.device().copy(&part(&from, 0), &part(&to, first))
    }

    /// Compiles the kernel without running it: the dispatch is only traced.
    async fn compile(&self, kernel: &Kernel) -> Result<()> {
        let device = self.context.device();
        let traced = || {
            let some = device.buffer(256, "kernel")?;
            device.dispatch(&kernel.shader(), &kernel.bindings_of(&some), [1, 1, 1])
        };
        device.prepare(traced).await?;
        let some = device.buffer(256, "kernel")?;
        let pipeline = device.pipeline(&kernel.shader(), &kernel.bindings_of(&some))?;
        kernel.pipeline.get_or_init(|| pipeline);
        Ok(())
    }

    /// What JavaScript says of a dispatch: tensors as numbers, uniforms as bytes.
    pub fn dispatch_of(&self, kernel: u32, values: &Array, grid: &[u32]) -> Result<Dispatch> {
        let kernel = self.kernels.borrow().get(&kernel).cloned();
        let Some(kernel) = kernel else { bail!(Disposed, "the kernel's device was destroyed") };
        let &[x, y, z] = grid else { bail!(InvalidRequest, "a grid has three numbers, not {grid:?}") };
        if values.length() as usize != kernel.bindings.len() {
            bail!(InvalidRequest, "{}: {} bindings, not {}", kernel.label, kernel.bindings.len(), values.length());
        }
        let (mut tensors, mut uniforms) = (Vec::with_capacity(kernel.bindings.len()), Vec::new());
        for (kind, value) in kernel.bindings.iter().zip(values.iter()) {
            match (kind, value.dyn_ref::<Uint8Array>(), value.as_f64()) {
                (Kind::Uniform, Some(bytes), _) => uniforms.push(bytes.to_vec()),
                (Kind::Read | Kind::ReadWrite, _, Some(id)) => tensors.push(id as u32),
                _ => bail!(InvalidRequest, "{}: a tensor for a uniform, or bytes for a tensor", kernel.label),
            }
        }
        Ok(Dispatch { kernel, tensors, uniforms, grid: [x, y, z] })
    }

    /// Records a dispatch with these tensors.
    pub fn dispatch(&self, dispatch: &Dispatch, tensors: &[Tensor]) -> Result<()> {
        let Dispatch { kernel, uniforms, grid, .. } = dispatch;
        let (mut slices, mut uniforms) = (tensors.iter().map(Tensor::slice), uniforms.iter());
        let bindings: Vec<Binding<'_>> = kernel
            .bindings
            .iter()
            .zip(0..)
            .filter_map(|(kind, number)| {
                Some(match kind {
                    Kind::Read => Binding::Read(number, slices.next()?),
                    Kind::ReadWrite => Binding::ReadWrite(number, slices.next()?),
                    Kind::Uniform => Binding::Uniform(number, uniforms.next()?),
                })
            })
            .collect();
        let (device, shader) = (self.context.device(), kernel.shader());
        match kernel.pipeline.get() {
            Some(pipeline) => device.dispatch_compiled(&shader, pipeline, &bindings, *grid),
            None => device.dispatch(&shader, &bindings, *grid),
        }
    }

    /// Submits at once and resolves when the GPU is done.
    pub fn sync(&self) -> Promise {
        let device = self.context.device().clone();
        let mut sync = Box::pin(async move { device.sync().await });
        // A promise's work begins after the call has returned, but the submit must happen at once.
        let at_once = (&mut sync).now_or_never();
        future_to_promise(async move {
            let result = match at_once {
                Some(result) => result,
                None => sync.await,
            };
            result.map(|()| JsValue::UNDEFINED).map_err(js_error)
        })
    }

    fn record_readback(&self, tensors: &[Tensor]) -> Result<RecordedReadback> {
        let slices: Vec<BufferSlice> =
            tensors.iter().map(|tensor| BufferSlice { size: tensor.bytes(), ..tensor.slice() }).collect();
        self.context.device().record_read(&slices)
    }

    /// Records the copies at once and resolves to one `Uint8Array` per tensor.
    pub fn start_readback(&self, tensors: &[Tensor]) -> Result<Promise> {
        self.start_recorded(self.record_readback(tensors)?)
    }

    fn start_recorded(&self, recorded: RecordedReadback) -> Result<Promise> {
        let readback = self.context.device().start_reading(recorded)?;
        Ok(future_to_promise(async move {
            let parts = readback.bytes().await.map_err(js_error)?;
            Ok(parts.iter().map(|bytes| JsValue::from(Uint8Array::from(&bytes[..]))).collect::<Array>().into())
        }))
    }
}

impl Kernel {
    fn new(label: String, wgsl: String, bindings: &[String], workgroup: &[u32]) -> Result<Self> {
        let &[x, y, z] = workgroup else { bail!(InvalidRequest, "a workgroup has three numbers, not {workgroup:?}") };
        let bindings = bindings
            .iter()
            .map(|kind| match kind.as_str() {
                "read" => Ok(Kind::Read),
                "read_write" => Ok(Kind::ReadWrite),
                "uniform" => Ok(Kind::Uniform),
                _ => bail!(InvalidRequest, "{label}: a binding is read, read_write or uniform, not {kind}"),
            })
            .collect::<Result<Vec<Kind>>>()?;
        // At the end, so that line numbers of the caller's text stay the same.
        let wgsl = format!(
            "{wgsl}\nconst WORKGROUP_X: u32 = {x}u;\nconst WORKGROUP_Y: u32 = {y}u;\nconst WORKGROUP_Z: u32 = {z}u;\n"
        );
        Ok(Self { label, wgsl, bindings, pipeline: OnceCell::new() })
    }

    /// Bindings of its kinds, to compile it.
    fn bindings_of(&self, some: &Buffer) -> Vec<Binding<'_>> {
        let binding = |(kind, number): (&Kind, u32)| match kind {
            Kind::Read => Binding::Read(number, some.slice()),
            Kind::ReadWrite => Binding::ReadWrite(number, some.slice()),
            Kind::Uniform => Binding::Uniform(number, &[]),
        };
        self.bindings.iter().zip(0..).map(binding).collect()
    }

    fn shader(&self) -> Shader<'_> {
        Shader { label: &self.label, template: Template::Text(&self.wgsl), modules: &[], defines: &[] }
    }
}

pub(super) fn describe(desc: Desc) -> Result<JsValue, JsValue> {
    to_js(&TensorInfo { shape: desc.shape.dims(), dtype: desc.dtype.name() })
}

/// The single value of an array to which a promise resolves.
pub(super) fn only(values: JsValue) -> Result<JsValue, Error> {
    match values.dyn_ref::<Array>().map(|values| values.get(0)) {
        Some(value) if !value.is_undefined() => Ok(value),
        _ => bail!(Internal, "a read-back returned nothing"),
    }
}
