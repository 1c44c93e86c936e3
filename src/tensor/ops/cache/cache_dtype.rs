//! The dtypes that keys and values can have in a KV cache; `wgsl/kv_cache.wgsl` is the same for kernels.

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::{DType, Desc, HostTensor, Rng, Shape};

/// All of them.
const CACHE_DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Q8_0];

/// The dtype to expect of caches whose first is `cache`: its dtype if a cache can have that.
pub(in crate::tensor::ops) fn cache_dtype(cache: Option<&Desc>) -> Option<DType> {
    match cache.map(|cache| cache.dtype) {
        Some(dtype) if CACHE_DTYPES.contains(&dtype) => Some(dtype),
        _ => Some(DType::F32),
    }
}

pub(in crate::tensor::ops) fn cache_defines(cache: Option<&Desc>) -> Option<(&'static str, Define)> {
    match cache_dtype(cache) {
        Some(DType::F16) => Some(("CACHE_F16", Define::Flag)),
        Some(DType::Q8_0) => Some(("CACHE_Q8_0", Define::Flag)),
        _ => None,
    }
}

/// The columns of a cache for `kv_heads` heads of `head_dim`: in blocks, heads are padded to whole ones.
pub fn cache_columns(dtype: DType, kv_heads: usize, head_dim: usize) -> usize {
    match dtype {
        DType::Q8_0 => kv_heads * head_dim.next_multiple_of(32),
        _ => kv_heads * head_dim,
    }
}

/// The numbers of a cache, in rows of kv_heads · head_dim, without the padding of heads.
pub(in crate::tensor::ops) fn cached(cache: &HostTensor, head_dim: usize) -> Result<Vec<f32>> {
    let values = cache.to_f32()?;
    let heads = values.chunks_exact(cache_columns(cache.dtype, 1, head_dim));
    Ok(heads.flat_map(|head| &head[..head_dim]).copied().collect())
}

pub(in crate::tensor::ops) fn set_cached(cache: &mut HostTensor, head_dim: usize, values: &[f32]) {
    let length = cache_columns(cache.dtype, 1, head_dim);
    let filled_up = |head: &[f32]| head.iter().copied().chain([0.0; 32]).take(length).collect::<Vec<f32>>();
    let values: Vec<f32> = values.chunks_exact(head_dim).flat_map(filled_up).collect();
    cache.set_f32(&values);
}

/// The dtype of the n-th case.
pub(in crate::tensor::ops) fn case_dtype(n: usize) -> DType {
    CACHE_DTYPES[n % CACHE_DTYPES.len()]
}

/// A cache of random numbers.
pub(in crate::tensor::ops) fn random_cache(
    rng: &mut Rng,
    dtype: DType,
    rows: &[usize],
    kv_heads: usize,
    head_dim: usize,
) -> HostTensor {
    let shape = Shape::new(&[rows, &[cache_columns(dtype, kv_heads, head_dim)]].concat());
    let mut cache = HostTensor::zeros(&Desc { shape, dtype });
    let count = rows.iter().product::<usize>() * kv_heads * head_dim;
    let values: Vec<f32> = (0..count).map(|_| rng.signed()).collect();
    set_cached(&mut cache, head_dim, &values);
    cache
}

/// The tolerance for a cache that a kernel wrote: a number halfway between two values of the dtype, within f32's error, may be
/// rounded to either, and so may a block's scale.
pub(in crate::tensor::ops) fn stored_tolerance(dtype: DType, f32: f64) -> f64 {
    match dtype {
        DType::F16 => 3e-4,
        DType::Q8_0 => 3e-3,
        _ => f32,
    }
}
