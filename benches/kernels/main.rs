//! Times kernels at the shapes of Llama-3.2-1B on the native adapter: `cargo bench --bench kernels -- --help`.
//!
//! Each kernel is first held to its CPU reference. Then a plan of one dispatch and a plan of many are replayed; the
//! difference of their wall clocks, by the difference of their dispatches, is what one takes between others. Where the adapter
//! has timestamps, the time of a dispatch in a pass of its own stands beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that fails says so by a panic")]

#[cfg(not(target_arch = "wasm32"))]
mod native;

fn main() {
    #[cfg(not(target_arch = "wasm32"))]
    native::main();
}
