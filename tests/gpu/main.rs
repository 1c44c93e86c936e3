//! The GPU runtime and what runs on it op by op: a file is a module, `cargo test --test gpu ops::` runs those of one.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]

#[path = "../support/mod.rs"]
mod support;

mod array_golden;
mod arrays;
mod autotune;
mod batch;
mod cpu;
mod gradients;
mod indexing;
mod memory;
mod ops;
mod plans;
mod quantize;
mod quants;
mod record;
mod runtime;
mod sampling;
mod scans;
mod sorting;
