//! The bindings for JavaScript and the browser's sources of bytes: conversion, no decisions.
//!
//! The only TypeScript that sees these is `pkg-template/src/wasm.ts`, and of `gpu` `tensor_wasm.ts` beside it.

#[cfg(feature = "engine")]
mod abort;
#[cfg(feature = "engine")]
mod adapters;
#[cfg(any(test, feature = "bench"))]
mod bench;
#[cfg(feature = "engine")]
mod blob;
mod bytes;
mod convert;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "engine")]
mod folder;
#[cfg(feature = "tensor")]
mod gpu;
#[cfg(feature = "engine")]
mod grammar;
#[cfg(feature = "engine")]
mod js_source;
#[cfg(feature = "engine")]
mod logits_processor;
#[cfg(feature = "engine")]
mod remote;
#[cfg(feature = "engine")]
mod sha256;
#[cfg(feature = "engine")]
mod source;
#[cfg(all(feature = "engine", not(feature = "cpu")))]
#[path = "no_team.rs"]
mod team;
#[cfg(all(feature = "engine", feature = "cpu"))]
mod team;
#[cfg(feature = "engine")]
mod thrown;

/// What the bindings of trainings use, which are a crate of their own (`training`).
#[cfg(feature = "train")]
pub use self::{
    abort::unless,
    blob::BlobSource,
    convert::{js_error, json_from_js, to_js},
    engine::WasmEngine,
    thrown::js_message,
};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(start)]
fn start() {
    // A panic is a fault of this library; with the hook its place is readable in the console.
    console_error_panic_hook::set_once();
}
