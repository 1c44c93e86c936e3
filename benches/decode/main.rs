//! Speed of decoding natively, by kinds of requests: one at a time, and several at once.
//!
//!   cargo bench --bench decode -- models/demo/rillm-demo-q4_0.gguf
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that fails says so by a panic")]

#[cfg(not(target_arch = "wasm32"))]
mod native;

#[cfg(not(target_arch = "wasm32"))]
fn main() {
    native::main();
}

#[cfg(target_arch = "wasm32")]
fn main() {}
