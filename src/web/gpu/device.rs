//! A device's bindings.
//!
//! Asynchronous calls record their commands before they return the promise, so that calls take effect in program order.

use std::rc::Rc;

use js_sys::{Array, Function, Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use super::super::convert::{from_js, js_error, js_number, to_js};
use super::batch::WasmBatch;
use super::info::describe;
use super::kernel::{Dispatch, Kernel};
use super::operations::WasmOperations;
use super::options::Options;
use super::plan::plan;
use super::readback::{self, WasmReadback};
use super::registry::Registry;
use super::target::Target;
use super::tensors;
use crate::error::Result;
use crate::gpu::Device;
use crate::tensor::{Context, Desc, Shape};

#[wasm_bindgen]
pub struct WasmGpu {
    pub(super) registry: Rc<Registry>,
}

#[wasm_bindgen]
impl WasmGpu {
    pub async fn adopt(device: JsValue, options: JsValue) -> Result<WasmGpu, JsValue> {
        let adopt = async {
            let options: Options = from_js("the options of the device", options)?;
            let device_options = options.device_options();
            let device = if options.shared {
                Device::adopt(&device, &device_options).await?
            } else {
                Device::own(&device, &device_options).await?
            };
            let registry = Registry::new(Context::new(device), options.shape_cache());
            Ok(WasmGpu { registry: Rc::new(registry) })
        };
        adopt.await.map_err(js_error)
    }

    /// The number of a shape. It is valid while the shape is kept.
    pub fn shape(&self, dims: &[u32]) -> Result<u32, JsValue> {
        self.registry.shape(dims).map_err(js_error)
    }

    pub fn tensor(&self, bytes: Uint8Array, shape: u32, dtype: &str) -> Result<u32, JsValue> {
        self.free_for("tensor")?;
        let (registry, library) = (&self.registry, &self.registry.library);
        let upload = || tensors::upload(library, bytes, &registry.dims(shape)?, tensors::dtype(dtype)?);
        registry.made(upload).map_err(js_error)
    }

    #[wasm_bindgen(js_name = importBuffer)]
    pub fn import_buffer(&self, buffer: JsValue, shape: u32, dtype: &str, offset: f64) -> Result<u32, JsValue> {
        let library = &self.registry.library;
        let import = || {
            let (dims, dtype, context) = (self.registry.dims(shape)?, tensors::dtype(dtype)?, library.context());
            tensors::check_size(&dims, dtype, context.device())?;
            let buffer = context.device().import_buffer(&buffer, "the imported buffer")?;
            let desc = Desc { shape: Shape::new(&dims), dtype: dtype.storage() };
            library.adopt(&context.tensor_from_buffer(desc, buffer, offset as u64)?, dtype)
        };
        self.registry.made(import).map_err(js_error)
    }

    pub fn describe(&self, tensor: u32) -> Result<JsValue, JsValue> {
        let tensor = self.registry.tensor(tensor).map_err(js_error)?;
        describe(tensor.dims(), tensor.dtype())
    }

    pub fn write(&self, tensor: u32, first: usize, bytes: Uint8Array) -> Result<(), JsValue> {
        self.free_for("write")?;
        let write = || tensors::write(&self.registry.library, &self.registry.tensor(tensor)?, first, bytes);
        write().map_err(js_error)
    }

    #[wasm_bindgen(js_name = disposeTensor)]
    pub fn dispose_tensor(&self, tensor: u32) {
        self.registry.remove(tensor);
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
            kernel.compile(registry.device()).await.map_err(js_error)?;
            Ok(registry.insert_kernel(kernel).into())
        }))
    }

    /// Records a dispatch; the bindings are numbers of tensors and, for uniforms, bytes.
    pub fn dispatch(&self, kernel: u32, bindings: Array, grid: &[u32]) -> Result<(), JsValue> {
        let dispatch = || {
            let dispatch = Dispatch::new(self.registry.kernel(kernel)?, &bindings, grid)?;
            dispatch.record(self.registry.device(), &dispatch.bound(&self.registry.tensors(&dispatch.tensors)?)?)
        };
        dispatch().map_err(js_error)
    }

    pub fn batch(&self) -> WasmBatch {
        WasmBatch::new(self.registry.clone())
    }

    /// The operations on its tensors.
    pub fn operations(&self) -> WasmOperations {
        WasmOperations::on(Target::Device(self.registry.clone()))
    }

    /// Resolves to a plan of what `step` records, which returns the numbers of its results.
    pub fn plan(&self, step: Function) -> Promise {
        plan(&self.registry, step)
    }

    /// How many dispatches and copies wait to be submitted.
    pub fn pending(&self) -> usize {
        self.registry.device().pending()
    }

    #[wasm_bindgen(js_name = setMaxBatchSize)]
    pub fn set_max_batch_size(&self, most: usize) {
        self.registry.device().set_max_batch(most);
    }

    #[wasm_bindgen(js_name = setLazyMode)]
    pub fn set_lazy_mode(&self, on: bool) -> Result<(), JsValue> {
        self.free_for("setLazyMode")?;
        self.registry.device().set_lazy(on);
        if !on {
            self.registry.library.evaluate_pending().map_err(js_error)?;
        }
        Ok(())
    }

    /// Copies all elements of a tensor to another one, from its element `first` on.
    #[wasm_bindgen(js_name = copyTensor)]
    pub fn copy_tensor(&self, from: u32, to: u32, first: usize) -> Result<(), JsValue> {
        let registry = &self.registry;
        let copy = || {
            let (from, to) = (registry.tensor(from)?, registry.tensor(to)?);
            if from.dtype() != to.dtype() {
                bail!(DtypeMismatch, "copyFrom: {} into {}", from.dtype().name(), to.dtype().name());
            }
            to.assign_from("copyFrom", first, &from.reshape(&[-1])?)
        };
        copy().map_err(js_error)
    }

    /// The GPUBuffer of a tensor and its first byte there.
    #[wasm_bindgen(js_name = tensorBuffer)]
    pub fn tensor_buffer(&self, tensor: u32) -> Result<Array, JsValue> {
        self.free_for("buffer")?;
        let export = || {
            let tensor = self.registry.tensor(tensor)?.exposed_tensor("buffer")?;
            self.registry.device().export_slice(&tensor.slice())
        };
        let (buffer, offset) = export().map_err(js_error)?;
        Ok(Array::of(&[buffer, js_number(offset).into()]))
    }

    /// Computes what waits and submits it.
    pub fn flush(&self) -> Result<(), JsValue> {
        self.free_for("flush")?;
        self.registry.library.evaluate_pending().map_err(js_error)?;
        self.registry.device().flush();
        Ok(())
    }

    pub fn sync(&self) -> Result<Promise, JsValue> {
        self.free_for("sync")?;
        self.registry.library.evaluate_pending().map_err(js_error)?;
        Ok(readback::sync(self.registry.device()))
    }

    /// Computes a tensor, without a submit.
    pub fn evaluate(&self, tensor: u32) -> Result<(), JsValue> {
        let evaluate = || self.registry.tensor(tensor)?.evaluate();
        evaluate().map_err(js_error)
    }

    /// One `Uint8Array` for each of the tensors.
    pub fn readback(&self, tensors: &[u32]) -> Result<Promise, JsValue> {
        self.free_for("readback")?;
        let start = || readback::read_arrays(self.registry.device(), &self.registry.tensors(tensors)?);
        start().map_err(js_error)
    }

    /// Records the copies of tensors, to be read later.
    #[wasm_bindgen(js_name = recordReadback)]
    pub fn record_readback(&self, tensors: &[u32]) -> Result<WasmReadback, JsValue> {
        self.free_for("recordReadback")?;
        let record = || WasmReadback::record(self.registry.device(), &self.registry.tensors(tensors)?);
        record().map_err(js_error)
    }

    #[wasm_bindgen(js_name = setProfiling)]
    pub fn set_profiling(&self, on: bool) -> Result<(), JsValue> {
        self.free_for("setProfiling")?;
        self.registry.device().set_profiling(on).map_err(js_error)
    }

    #[wasm_bindgen(js_name = kernelTimes)]
    pub async fn kernel_times(&self) -> Result<JsValue, JsValue> {
        let times = self.registry.device().kernel_times().await.map_err(js_error)?;
        to_js(&times)
    }

    pub fn stats(&self) -> Result<JsValue, JsValue> {
        to_js(&self.registry.device().stats())
    }

    #[wasm_bindgen(js_name = resetStats)]
    pub fn reset_stats(&self) {
        self.registry.device().reset_stats();
    }

    #[wasm_bindgen(js_name = memoryStats)]
    pub fn memory_stats(&self) -> Result<JsValue, JsValue> {
        to_js(&self.registry.memory())
    }

    /// Frees what waits for reuse.
    pub fn trim(&self) -> Result<(), JsValue> {
        self.free_for("trim")?;
        self.registry.device().trim();
        Ok(())
    }

    pub fn destroy(&self) {
        self.registry.destroy();
    }
}

impl WasmGpu {
    /// An error while a plan is recorded.
    fn free_for(&self, what: &str) -> Result<(), JsValue> {
        self.registry.library.check_is_free(what).map_err(js_error)
    }
}
