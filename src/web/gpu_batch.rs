//! A batch's bindings for JavaScript: names of operations become ops.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Array, Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

use super::convert::js_error;
use super::gpu::{Registry, describe, only};
use crate::error::Result;
use crate::tensor::ops::{Binary, BinaryKind, Dot, MatMulF32, Scale, Unary, UnaryKind};
use crate::tensor::{Batch, Shape};

#[wasm_bindgen]
pub struct WasmBatch {
    registry: Rc<Registry>,
    id: u32,
    /// `None` once it was disposed of.
    batch: Rc<RefCell<Option<Batch>>>,
}

#[wasm_bindgen]
impl WasmBatch {
    pub fn upload(&self, bytes: Uint8Array, shape: u32, dtype: &str) -> Result<u32, JsValue> {
        self.with(|batch| Ok(batch.insert(self.registry.upload(bytes, shape, dtype)?)))
    }

    /// Shares a tensor of the device.
    pub fn adopt(&self, tensor: u32) -> Result<u32, JsValue> {
        self.with(|batch| Ok(batch.insert(self.registry.tensor(tensor)?)))
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
        self.with(|batch| Ok(batch.insert(self.registry.fill(shape, dtype, 0)?)))
    }

    /// Notes a dispatch; the bindings are numbers of buffers and, for uniforms, bytes.
    pub fn dispatch(&self, kernel: u32, bindings: Array, grid: &[u32]) -> Result<(), JsValue> {
        self.with(|batch| {
            let dispatch = self.registry.dispatch_of(kernel, &bindings, grid)?;
            let (registry, buffers) = (self.registry.clone(), dispatch.tensors.clone());
            batch.record_call(move |tensors| registry.dispatch(&dispatch, tensors), &buffers)
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
        describe(self.with(|batch| batch.desc(buffer))?)
    }

    pub fn compile(&self) -> Result<Promise, JsValue> {
        let compiled = self.with(|batch| Ok(batch.compile()))?;
        Ok(future_to_promise(async move { compiled.await.map(|()| JsValue::UNDEFINED).map_err(js_error) }))
    }

    /// Submits at once; the promise resolves at the end of the work.
    pub fn execute(&self) -> Result<Promise, JsValue> {
        self.with(Batch::execute)?;
        Ok(self.registry.sync())
    }

    pub fn read(&self, buffer: u32) -> Result<Promise, JsValue> {
        let tensor = self.with(|batch| batch.tensor(buffer).cloned())?;
        let values = self.registry.start_readback(&[tensor]).map_err(js_error)?;
        Ok(future_to_promise(async move { only(JsFuture::from(values).await?).map_err(js_error) }))
    }

    /// A tensor of the device that shares the buffer.
    pub fn tensor(&self, buffer: u32) -> Result<u32, JsValue> {
        let tensor = self.with(|batch| batch.tensor(buffer).cloned())?;
        Ok(self.registry.insert(tensor))
    }

    pub fn dispose(&self) {
        self.registry.batches.borrow_mut().remove(&self.id);
        self.batch.take();
    }
}

impl WasmBatch {
    pub(super) fn new(registry: Rc<Registry>) -> Self {
        let batch = Batch::new(registry.context.clone());
        let batch = Rc::new(RefCell::new(Some(batch)));
        let id = registry.next_id();
        registry.batches.borrow_mut().insert(id, Rc::downgrade(&batch));
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
        self.registry.batches.borrow_mut().remove(&self.id);
    }
}
