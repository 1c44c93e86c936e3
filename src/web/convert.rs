//! Between JavaScript values and Rust's.

use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::*;

use crate::error::{Code, Error, Result};

/// An `EngineError` as JavaScript sees it: an `Error` with `name`, `code` and `message`.
pub fn js_error(error: Error) -> JsValue {
    let js = js_sys::Error::new(error.message());
    js.set_name("EngineError");
    // Setting a property of a fresh error does not fail.
    let _ = js_sys::Reflect::set(&js, &"code".into(), &error.code().as_str().into());
    js.into()
}

/// Plain objects, arrays, strings and numbers.
pub fn to_js<T: Serialize + ?Sized>(value: &T) -> Result<JsValue, JsValue> {
    let serializer = serde_wasm_bindgen::Serializer::json_compatible();
    value.serialize(&serializer).map_err(|error| js_error(Error::new(Code::Internal, error.to_string())))
}

/// A value from a caller, read as requests are. Mistakes in it are `invalid_request`.
pub fn from_js<T: DeserializeOwned>(what: &str, value: JsValue) -> Result<T> {
    serde_json::from_value(json_from_js(what, &value)?).map_err(|error| err!(InvalidRequest, "{what}: {error}"))
}

/// A JSON value by `JSON.stringify`, which leaves out values that JSON can't hold.
pub fn json_from_js(what: &str, value: &JsValue) -> Result<serde_json::Value> {
    let text = js_sys::JSON::stringify(value)
        .ok()
        .and_then(|text| text.as_string())
        .ok_or_else(|| err!(InvalidRequest, "{what} can't be written as JSON"))?;
    serde_json::from_str(&text).map_err(|error| err!(InvalidRequest, "{what}: {error}"))
}

/// A number for a JavaScript API that uses doubles for sizes; files are far below 2^53 bytes.
pub fn js_number(bytes: u64) -> f64 {
    bytes as f64
}
