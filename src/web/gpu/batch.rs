//! A batch's bindings for JavaScript, but for its operations, which are those of tensors.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

use super::super::convert::js_error;
use super::info::describe;
use super::kernel::Dispatch;
use super::operations::WasmOperations;
use super::readback::{only, read_arrays, sync};
use super::registry::{OpenBatch, Registry};
use super::target::Target;
use super::tensors::{dtype, upload};
use crate::array::{Array, Batch};
use crate::error::Result;

#[wasm_bindgen]
pub struct WasmBatch {
    registry: Rc<Registry>,
    id: u32,
    /// `None` once it was disposed of.
    batch: Rc<OpenBatch>,
}

#[wasm_bindgen]
impl WasmBatch {
    /// Its operations; numbers are those of its buffers.
    pub fn operations(&self) -> WasmOperations {
        WasmOperations::on(Target::Batch(self.registry.clone(), self.batch.clone()))
    }

    pub fn upload(&self, bytes: Uint8Array, shape: u32, dtype_name: &str) -> Result<u32, JsValue> {
        self.with(|batch| {
            self.registry.library.check_is_free("upload")?;
            let (dims, dtype) = (self.registry.dims(shape)?, dtype(dtype_name)?);
            Ok(batch.insert(upload(&self.registry.library, bytes, &dims, dtype)?))
        })
    }

    /// Shares a tensor of the device.
    pub fn adopt(&self, tensor: u32) -> Result<u32, JsValue> {
        self.with(|batch| Ok(batch.insert(self.registry.tensor(tensor)?)))
    }

    /// The product of buffers that are read as matrices `[m, k]` and `[k, n]`, row by row.
    #[wasm_bindgen(js_name = matmulAs)]
    pub fn matmul_as(&self, a: u32, b: u32, m: usize, k: usize, n: usize) -> Result<u32, JsValue> {
        self.with(|batch| {
            for (buffer, rows, columns) in [(a, m, k), (b, k, n)] {
                let (shape, _) = batch.describe(buffer)?;
                if rows.checked_mul(columns) != Some(shape.elements()) {
                    bail!(
                        ShapeMismatch,
                        "matmul: buffer {buffer} of shape {shape} has {} elements and can't be read as [{rows}, {columns}]",
                        shape.elements()
                    );
                }
            }
            let read_as = |array: &Array, rows: usize, columns: usize| array.reshape(&[rows as i64, columns as i64]);
            let product = move |arrays: &[Array]| {
                let (a, b) = (read_as(&arrays[0], m, k)?, read_as(&arrays[1], k, n)?);
                Ok(vec![a.matmul(&b)?])
            };
            first(batch.note(&[a, b], product)?)
        })
    }

    /// The sum of products of all elements of buffers of one shape: one element.
    #[wasm_bindgen(js_name = dotOfAll)]
    pub fn dot_of_all(&self, a: u32, b: u32) -> Result<u32, JsValue> {
        self.with(|batch| {
            let ((left, _), (right, _)) = (batch.describe(a)?, batch.describe(b)?);
            if left != right {
                bail!(ShapeMismatch, "dot: the shapes {left} and {right} differ");
            }
            let dot = |arrays: &[Array]| {
                let flat = |array: &Array| array.reshape(&[-1]);
                Ok(vec![flat(&arrays[0])?.dot(&flat(&arrays[1])?)?.reshape(&[1])?])
            };
            first(batch.note(&[a, b], dot)?)
        })
    }

    /// Notes a dispatch; the bindings are numbers of buffers and, for uniforms, bytes.
    pub fn dispatch(&self, kernel: u32, bindings: js_sys::Array, grid: &[u32]) -> Result<(), JsValue> {
        self.with(|batch| {
            let dispatch = Dispatch::new(self.registry.kernel(kernel)?, &bindings, grid)?;
            let (device, buffers) = (self.registry.device().clone(), dispatch.tensors.clone());
            let record = move |arrays: &[Array]| {
                dispatch.record(&device, &dispatch.bound(arrays)?)?;
                Ok(Vec::new())
            };
            batch.note(&buffers, record).map(|_| ())
        })
    }

    #[wasm_bindgen(js_name = numOperations)]
    pub fn num_operations(&self) -> Result<usize, JsValue> {
        self.with(|batch| Ok(batch.operations()))
    }

    #[wasm_bindgen(js_name = numBuffers)]
    pub fn num_buffers(&self) -> Result<usize, JsValue> {
        self.with(|batch| Ok(batch.buffers()))
    }

    pub fn describe(&self, buffer: u32) -> Result<JsValue, JsValue> {
        let (shape, dtype) = self.with(|batch| batch.describe(buffer))?;
        describe(shape.dims(), dtype)
    }

    pub fn compile(&self) -> Result<Promise, JsValue> {
        let compiled = self.with(|batch| Ok(batch.compile()))?;
        Ok(future_to_promise(async move { compiled.await.map(|()| JsValue::UNDEFINED).map_err(js_error) }))
    }

    /// Submits at once; the promise resolves at the end of the work. With `outputs`, other results are given up.
    pub fn execute(&self, outputs: Option<Vec<u32>>) -> Result<Promise, JsValue> {
        self.with(|batch| match outputs {
            Some(outputs) => batch.execute_for(&outputs),
            None => batch.execute(),
        })?;
        Ok(sync(self.registry.device()))
    }

    pub fn read(&self, buffer: u32) -> Result<Promise, JsValue> {
        let array = self.with(|batch| batch.array(buffer))?;
        let values = read_arrays(self.registry.device(), &[array]).map_err(js_error)?;
        Ok(future_to_promise(async move { only(JsFuture::from(values).await?).map_err(js_error) }))
    }

    /// A tensor of the device that shares the buffer.
    pub fn tensor(&self, buffer: u32) -> Result<u32, JsValue> {
        let array = self.with(|batch| batch.array(buffer))?;
        Ok(self.registry.insert(array))
    }

    pub fn dispose(&self) {
        self.registry.remove_batch(self.id);
        self.batch.take();
    }
}

impl WasmBatch {
    pub fn new(registry: Rc<Registry>) -> Self {
        let batch = Rc::new(RefCell::new(Some(Batch::new(&registry.library))));
        let id = registry.insert_batch(&batch);
        Self { registry, id, batch }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Batch) -> Result<T>) -> Result<T, JsValue> {
        match &mut *self.batch.borrow_mut() {
            Some(batch) => work(batch).map_err(js_error),
            None => Err(js_error(err!(Disposed, "the batch was disposed of"))),
        }
    }
}

impl Drop for WasmBatch {
    fn drop(&mut self) {
        self.registry.remove_batch(self.id);
    }
}

fn first(results: Vec<u32>) -> Result<u32> {
    results.first().copied().ok_or_else(|| err!(Internal, "an operation has no result"))
}
