//! What runs without a GPU: tokenizers, templates, stop strings, tool calls. A file is a module, `cargo test --test text templates::`
//! runs those of one.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod hostile_templates;
mod templates;
mod text;
mod tokenizers;
