//! Waiting for the GPU, and reading tensors.

use std::cell::RefCell;

use futures_util::FutureExt;
use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use super::super::convert::js_error;
use crate::array::Array;
use crate::error::Result;
use crate::gpu::{BufferSlice, Device, RecordedReadback};
use crate::tensor::Tensor;

/// A read-back whose copies are recorded.
#[wasm_bindgen]
pub struct WasmReadback {
    device: Device,
    /// `None` once it was started.
    recorded: RefCell<Option<RecordedReadback>>,
}

#[wasm_bindgen]
impl WasmReadback {
    /// One `Uint8Array` for each of the tensors. Once only.
    pub fn start(&self) -> Result<Promise, JsValue> {
        let start = || match self.recorded.take() {
            Some(recorded) => start_recorded(&self.device, recorded),
            None => bail!(Internal, "a read-back was started twice"),
        };
        start().map_err(js_error)
    }
}

impl WasmReadback {
    /// Records the copies of tensors, to be read later.
    pub fn record(device: &Device, tensors: &[Array]) -> Result<Self> {
        Ok(Self { device: device.clone(), recorded: RefCell::new(Some(record(device, &readable(tensors)?)?)) })
    }
}

/// Submits at once and resolves when the GPU is done.
pub fn sync(device: &Device) -> Promise {
    let device = device.clone();
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

/// Computes the tensors, records the copies at once and resolves to one `Uint8Array` per tensor.
pub fn read_arrays(device: &Device, tensors: &[Array]) -> Result<Promise> {
    read(device, &readable(tensors)?)
}

fn readable(tensors: &[Array]) -> Result<Vec<Tensor>> {
    tensors.iter().map(Array::readable_tensor).collect()
}

/// Records the copies at once and resolves to one `Uint8Array` per tensor.
pub fn read(device: &Device, tensors: &[Tensor]) -> Result<Promise> {
    start_recorded(device, record(device, tensors)?)
}

fn record(device: &Device, tensors: &[Tensor]) -> Result<RecordedReadback> {
    let slices: Vec<BufferSlice> =
        tensors.iter().map(|tensor| BufferSlice { size: tensor.bytes(), ..tensor.slice() }).collect();
    device.record_read(&slices)
}

fn start_recorded(device: &Device, recorded: RecordedReadback) -> Result<Promise> {
    let readback = device.start_reading(recorded)?;
    Ok(future_to_promise(async move {
        let parts = readback.bytes().await.map_err(js_error)?;
        Ok(parts.iter().map(|bytes| JsValue::from(Uint8Array::from(&bytes[..]))).collect::<js_sys::Array>().into())
    }))
}

/// The single value of an array to which a promise resolves.
pub fn only(values: JsValue) -> Result<JsValue> {
    match values.dyn_ref::<js_sys::Array>().map(|values| values.get(0)) {
        Some(value) if !value.is_undefined() => Ok(value),
        _ => bail!(Internal, "a read-back returned nothing"),
    }
}
