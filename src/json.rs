//! JSON by way of JSON values.
//!
//! serde makes a reader for each type and each kind of input. Requests are read from values; what is read from bytes like this needs no
//! readers of its own, which are kilobytes of wasm for each type.

use serde::de::DeserializeOwned;

/// Reads a small document. Errors name no place in it.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::from_slice(bytes)?)
}
