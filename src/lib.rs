//! rillm runs language models in the browser on WebGPU.
//!
//! Folders are layers; each may only use those below it (`ARCHITECTURE.md`, checked by `tests/layers.rs`):
//! `web` → `engine` → `sampler`, `model`, `text` → `tensor` → `gpu` → `error`.
//!
//! Without the feature `engine` there is no layer that knows models or text.

#[macro_use]
pub mod error;
pub mod array;
#[cfg(feature = "engine")]
mod decode;
#[cfg(feature = "engine")]
pub mod engine;
pub mod gpu;
mod json;
#[cfg(feature = "engine")]
pub mod model;
#[cfg(all(feature = "engine", not(target_arch = "wasm32")))]
pub mod native;
#[cfg(feature = "engine")]
pub mod sampler;
#[cfg_attr(
    not(feature = "engine"),
    allow(dead_code, unused_imports, reason = "what the engine alone uses, the linker drops")
)]
pub mod tensor;
#[cfg(feature = "engine")]
pub mod text;
#[cfg(feature = "train")]
pub mod train;
#[cfg(all(target_arch = "wasm32", not(feature = "train")))]
mod web;
#[cfg(all(target_arch = "wasm32", feature = "train"))]
#[doc(hidden)]
pub mod web;

pub use error::{Code, Error, Result};
