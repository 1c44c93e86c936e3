//! A batch's bindings for JavaScript: names of operations become ops.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

use super::super::convert::js_error;
use super::info::describe;
use super::kernel::Dispatch;
use super::readback::{only, read, sync};
use super::registry::{OpenBatch, Registry};
use super::tensors::{dtype, upload};
use crate::array::{Array, DType, Scalar};
use crate::error::Result;
use crate::tensor::ops::{Binary, BinaryKind, Dot, MatMulF32, Scale, Unary, UnaryKind};
use crate::tensor::{self, Batch, Shape};

#[wasm_bindgen]
pub struct WasmBatch {
    registry: Rc<Registry>,
    id: u32,
    /// `None` once it was disposed of.
    batch: Rc<OpenBatch>,
    /// The device's tensors that it shares.
    adopted: RefCell<Vec<Array>>,
}

#[wasm_bindgen]
impl WasmBatch {
    pub fn upload(&self, bytes: Uint8Array, shape: u32, dtype: &str) -> Result<u32, JsValue> {
        self.with(|batch| {
            let uploaded = upload(&self.registry.library, bytes, &self.registry.dims(shape)?, batch_dtype(dtype)?)?;
            Ok(batch.insert(uploaded.readable_tensor()?))
        })
    }

    /// Shares a tensor of the device.
    pub fn adopt(&self, tensor: u32) -> Result<u32, JsValue> {
        self.with(|batch| {
            let array = self.registry.tensor(tensor)?;
            batch_dtype(array.dtype().name())?;
            let id = batch.insert(array.writable_tensor("batch")?);
            self.adopted.borrow_mut().push(array);
            Ok(id)
        })
    }

    pub fn unary(&self, kind: &str, x: u32) -> Result<u32, JsValue> {
        self.with(|batch| {
            let kind = match kind {
                "abs" => UnaryKind::Abs,
                "exp" => UnaryKind::Exp,
                "gelu" => UnaryKind::Gelu,
                "neg" => UnaryKind::Neg,
                "relu" => UnaryKind::Relu,
                "sigmoid" => UnaryKind::Sigmoid,
                "sqrt" => UnaryKind::Sqrt,
                "swish" => UnaryKind::Swish,
                "tanh" => UnaryKind::Tanh,
                _ => bail!(InvalidRequest, "there is no operation {kind} of one buffer"),
            };
            batch.record(Unary { kind }, &[x])
        })
    }

    pub fn binary(&self, kind: &str, a: u32, b: u32) -> Result<u32, JsValue> {
        self.with(|batch| {
            let kind = match kind {
                "add" => BinaryKind::Add,
                "sub" => BinaryKind::Sub,
                "mul" => BinaryKind::Mul,
                "div" => BinaryKind::Div,
                "max" => BinaryKind::Max,
                "min" => BinaryKind::Min,
                _ => bail!(InvalidRequest, "there is no operation {kind} of two buffers"),
            };
            batch.record(Binary { kind }, &[a, b])
        })
    }

    pub fn scale(&self, x: u32, factor: f32) -> Result<u32, JsValue> {
        self.with(|batch| batch.record(Scale { factor }, &[x]))
    }

    pub fn dot(&self, a: u32, b: u32) -> Result<u32, JsValue> {
        self.with(|batch| batch.record(Dot, &[a, b]))
    }

    pub fn matmul(&self, a: u32, b: u32, m: usize, k: usize, n: usize) -> Result<u32, JsValue> {
        self.with(|batch| {
            let matrix = |rows: usize, columns: usize| match rows.checked_mul(columns) {
                Some(_) => Ok(Shape::from([rows, columns])),
                None => bail!(ShapeMismatch, "matmul: no buffer has {rows} × {columns} elements"),
            };
            matrix(m, n)?;
            batch.record_as(MatMulF32, &[a, b], &[matrix(m, k)?, matrix(k, n)?])
        })
    }

    pub fn zeros(&self, shape: u32, dtype: &str) -> Result<u32, JsValue> {
        self.with(|batch| {
            let dims = self.registry.dims(shape)?;
            let zeros = self.registry.library.full(&dims, batch_dtype(dtype)?, Scalar::Int(0))?;
            Ok(batch.insert(zeros.readable_tensor()?))
        })
    }

    /// Notes a dispatch; the bindings are numbers of buffers and, for uniforms, bytes.
    pub fn dispatch(&self, kernel: u32, bindings: js_sys::Array, grid: &[u32]) -> Result<(), JsValue> {
        self.with(|batch| {
            let dispatch = Dispatch::new(self.registry.kernel(kernel)?, &bindings, grid)?;
            let (device, buffers) = (self.registry.device().clone(), dispatch.tensors.clone());
            batch.record_call(move |tensors| dispatch.record(&device, tensors), &buffers)
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
        let desc = self.with(|batch| batch.desc(buffer))?;
        describe(desc.shape.dims(), dtype_of(desc.dtype))
    }

    pub fn compile(&self) -> Result<Promise, JsValue> {
        let compiled = self.with(|batch| Ok(batch.compile()))?;
        Ok(future_to_promise(async move { compiled.await.map(|()| JsValue::UNDEFINED).map_err(js_error) }))
    }

    /// Submits at once; the promise resolves at the end of the work.
    pub fn execute(&self) -> Result<Promise, JsValue> {
        // Its kernels may write tensors of which something is derived that waits.
        self.with(|batch| {
            self.adopted.borrow().iter().try_for_each(|array| array.writable_tensor("batch").map(|_| ()))?;
            batch.execute()
        })?;
        Ok(sync(self.registry.device()))
    }

    pub fn read(&self, buffer: u32) -> Result<Promise, JsValue> {
        let tensor = self.with(|batch| batch.tensor(buffer).cloned())?;
        let values = read(self.registry.device(), &[tensor]).map_err(js_error)?;
        Ok(future_to_promise(async move { only(JsFuture::from(values).await?).map_err(js_error) }))
    }

    /// A tensor of the device that shares the buffer.
    pub fn tensor(&self, buffer: u32) -> Result<u32, JsValue> {
        let tensor = self.with(|batch| {
            let tensor = batch.tensor(buffer)?;
            self.registry.library.adopt(tensor, dtype_of(tensor.dtype()))
        })?;
        Ok(self.registry.insert(tensor))
    }

    pub fn dispose(&self) {
        self.registry.remove_batch(self.id);
        self.adopted.take();
        self.batch.take();
    }
}

impl WasmBatch {
    pub fn new(registry: Rc<Registry>) -> Self {
        let batch = Batch::new(registry.context().clone());
        let batch = Rc::new(RefCell::new(Some(batch)));
        let id = registry.insert_batch(&batch);
        Self { registry, id, batch, adopted: RefCell::default() }
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

/// The types that the operations of a batch know.
fn batch_dtype(name: &str) -> Result<DType> {
    match dtype(name)? {
        dtype @ (DType::F32 | DType::U32) => Ok(dtype),
        other => bail!(DtypeMismatch, "a buffer of a batch is of dtype f32 or u32, not {}", other.name()),
    }
}

fn dtype_of(storage: tensor::DType) -> DType {
    if storage == tensor::DType::F32 { DType::F32 } else { DType::U32 }
}
