//! A device's bindings.
//!
//! Asynchronous calls record their commands before they return the promise, so that calls take effect in program order.

use std::rc::Rc;

use js_sys::{Array, Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use super::super::convert::{from_js, js_error, js_number, to_js};
use super::batch::WasmBatch;
use super::info::describe;
use super::kernel::{Dispatch, Kernel};
use super::options::Options;
use super::readback::{self, WasmReadback};
use super::registry::Registry;
use super::tensors;
use crate::array::{Array as Tensor, Library};
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
        self.made(|library| tensors::upload(library, bytes, &self.registry.dims(shape)?, tensors::dtype(dtype)?))
    }

    #[wasm_bindgen(js_name = importBuffer)]
    pub fn import_buffer(&self, buffer: JsValue, shape: u32, dtype: &str) -> Result<u32, JsValue> {
        self.made(|library| {
            let (dims, dtype, context) = (self.registry.dims(shape)?, tensors::dtype(dtype)?, library.context());
            tensors::check_size(&dims, dtype, context.device())?;
            let buffer = context.device().import_buffer(&buffer, "the imported buffer")?;
            let desc = Desc { shape: Shape::new(&dims), dtype: dtype.storage() };
            library.adopt(&context.tensor_from_buffer(desc, buffer)?, dtype)
        })
    }

    pub fn describe(&self, tensor: u32) -> Result<JsValue, JsValue> {
        let tensor = self.registry.tensor(tensor).map_err(js_error)?;
        describe(tensor.dims(), tensor.dtype())
    }

    pub fn write(&self, tensor: u32, first: usize, bytes: Uint8Array) -> Result<(), JsValue> {
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
        let export = || {
            let tensor = self.registry.tensor(tensor)?.writable_tensor("buffer")?;
            self.registry.device().export_slice(&tensor.slice())
        };
        let (buffer, offset) = export().map_err(js_error)?;
        Ok(Array::of(&[buffer, js_number(offset).into()]))
    }

    /// Computes what waits and submits it.
    pub fn flush(&self) -> Result<(), JsValue> {
        self.registry.library.evaluate_pending().map_err(js_error)?;
        self.registry.device().flush();
        Ok(())
    }

    pub fn sync(&self) -> Result<Promise, JsValue> {
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
        let start = || readback::read_arrays(self.registry.device(), &self.registry.tensors(tensors)?);
        start().map_err(js_error)
    }

    /// Records the copies of tensors, to be read later.
    #[wasm_bindgen(js_name = recordReadback)]
    pub fn record_readback(&self, tensors: &[u32]) -> Result<WasmReadback, JsValue> {
        let record = || WasmReadback::record(self.registry.device(), &self.registry.tensors(tensors)?);
        record().map_err(js_error)
    }

    #[wasm_bindgen(js_name = setProfiling)]
    pub fn set_profiling(&self, on: bool) -> Result<(), JsValue> {
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
    pub fn trim(&self) {
        self.registry.device().trim();
    }

    pub fn destroy(&self) {
        self.registry.destroy();
    }
}

impl WasmGpu {
    /// The number of a tensor that `make` makes. Where nothing is to wait, it is computed at once.
    pub(super) fn made(&self, make: impl FnOnce(&Library) -> Result<Tensor>) -> Result<u32, JsValue> {
        let made = || {
            // What waits would say so only when it is computed.
            self.registry.device().check_usable()?;
            let tensor = make(&self.registry.library)?;
            if !self.registry.device().is_lazy() {
                tensor.evaluate()?;
            }
            Ok(self.registry.insert(tensor))
        };
        made().map_err(js_error)
    }
}
