//! The dtypes that keys and values can have in a KV cache; `wgsl/kv_cache.wgsl` is the same for kernels.

use crate::gpu::Define;
use crate::tensor::{DType, Desc};

/// What is expected of caches, of which `cache` is the first: that of it, if a cache can have it.
pub(super) fn cache_dtype(cache: Option<&Desc>) -> Option<DType> {
    match cache.map(|cache| cache.dtype) {
        Some(DType::F16) => Some(DType::F16),
        _ => Some(DType::F32),
    }
}

pub(super) fn cache_defines(cache: Option<&Desc>) -> Option<(&'static str, Define)> {
    (cache_dtype(cache) == Some(DType::F16)).then_some(("CACHE_F16", Define::Flag))
}
