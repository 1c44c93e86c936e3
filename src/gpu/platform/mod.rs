//! What differs between browsers and native drivers: requesting a device, compiling several pipelines at once, and where to log.

pub(super) mod probe;

#[cfg(target_arch = "wasm32")]
pub(super) mod browser;
#[cfg(target_arch = "wasm32")]
pub(super) use browser::{compile, compile_all, finish, log, prefers_cpu, request};

#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(not(target_arch = "wasm32"))]
mod reuse;
#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::{compile_all, finish, log, prefers_cpu, request};
#[cfg(not(target_arch = "wasm32"))]
pub(super) use reuse::compile;

/// Browsers demand `enable subgroups;` in WGSL, naga rejects it.
#[cfg(target_arch = "wasm32")]
pub(super) const ENABLE_SUBGROUPS_LINE: bool = true;
#[cfg(not(target_arch = "wasm32"))]
pub(super) const ENABLE_SUBGROUPS_LINE: bool = false;
