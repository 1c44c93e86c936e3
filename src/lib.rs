//! rillm runs language models in the browser on WebGPU.
//!
//! Folders are layers; each may only use those below it (`ARCHITECTURE.md`, checked by `tests/layers.rs`):
//! `web` → `engine` → `sampler`, `model`, `text` → `tensor` → `gpu` → `error`.

#[macro_use]
pub mod error;
mod decode;
pub mod engine;
pub mod gpu;
mod json;
pub mod model;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
pub mod sampler;
pub mod tensor;
pub mod text;
#[cfg(target_arch = "wasm32")]
mod web;

pub use error::{Code, Error, Result};
