//! What JavaScript is told of tensors and of a device's memory.

use serde::Serialize;
use wasm_bindgen::JsValue;

use super::super::convert::to_js;
use crate::array::DType;
use crate::gpu::MemoryStats;

/// The description of a tensor for JavaScript.
#[derive(Serialize)]
struct TensorInfo<'a> {
    shape: &'a [usize],
    dtype: &'static str,
}

/// What is alive on the GPU, for JavaScript.
#[derive(Serialize)]
pub struct Memory {
    pub tensors: usize,
    pub tensor_bytes: u64,
    #[serde(flatten)]
    pub device: MemoryStats,
}

pub fn describe(shape: &[usize], dtype: DType) -> Result<JsValue, JsValue> {
    to_js(&TensorInfo { shape, dtype: dtype.name() })
}
