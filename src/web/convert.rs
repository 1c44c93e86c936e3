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

/// A JSON value by `JSON.stringify`, which leaves out values that JSON can't hold. Half a character becomes U+FFFD, as in `TextEncoder`.
pub fn json_from_js(what: &str, value: &JsValue) -> Result<serde_json::Value> {
    let text = js_sys::JSON::stringify(value)
        .ok()
        .and_then(|text| text.as_string())
        .ok_or_else(|| err!(InvalidRequest, "{what} can't be written as JSON"))?;
    serde_json::from_str(&with_whole_characters(text)).map_err(|error| err!(InvalidRequest, "{what}: {error}"))
}

/// JSON with U+FFFD for each half of a surrogate pair that stands alone: `JSON.stringify` escapes these, and no others.
fn with_whole_characters(json: String) -> String {
    if !json.contains("\\ud") {
        return json;
    }
    let mut whole = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let length = if escape.starts_with("\\ud") { 6 } else { 2 };
        whole.push_str(if length == 6 { "\u{fffd}" } else { &escape[..length] });
        rest = &escape[length..];
    }
    whole.push_str(rest);
    whole
}

/// A number for a JavaScript API that uses doubles for sizes; files are far below 2^53 bytes.
pub fn js_number(bytes: u64) -> f64 {
    bytes as f64
}
