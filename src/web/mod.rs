//! The bindings for JavaScript and the browser's sources of bytes: conversion, no decisions.
//!
//! `pkg-template/src/wasm.ts` is the only TypeScript that sees these.

mod abort;
#[cfg(any(test, feature = "bench"))]
mod bench;
mod blob;
mod bytes;
mod convert;
mod engine;
mod folder;
mod gpu;
mod gpu_batch;
mod grammar;
mod js_source;
mod logits_processor;
mod remote;
mod sha256;
mod source;

use wasm_bindgen::prelude::*;

#[wasm_bindgen(start)]
fn start() {
    // A panic is a fault of this library; with the hook its place is readable in the console.
    console_error_panic_hook::set_once();
}
