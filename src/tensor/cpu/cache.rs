//! Keys and values in a cache.

use rillm_cpu_kernels::{Cache, to_f16};

use super::fits;
use crate::error::Result;
use crate::tensor::ops::cache_columns;
use crate::tensor::{CpuTensor, DType, kv_blocks};

/// Numbers of two blocks of q8_0, and their bytes.
const PAIR: usize = kv_blocks::PAIR as usize;
const PAIR_BYTES: usize = kv_blocks::PAIR_BYTES as usize;

/// Where heads begin in a row of a cache: at multiples of this.
fn head_stride(cache: &CpuTensor<'_>, head_dim: usize) -> usize {
    cache_columns(cache.desc.dtype, 1, head_dim)
}

/// The columns of a row.
fn columns(cache: &CpuTensor<'_>) -> usize {
    cache.desc.shape.dims().last().copied().unwrap_or(0)
}

/// All rows of a cache, those of all sequences.
pub fn cache<'a>(cache: &'a CpuTensor<'_>, head_dim: usize) -> Result<Cache<'a>> {
    let (columns, head) = (columns(cache), head_stride(cache, head_dim));
    Ok(match cache.desc.dtype {
        DType::F16 => Cache::f16(cache.bytes()?, columns, head),
        DType::Q8_0 => fits(Cache::q8_0(cache.bytes()?, columns, head))?,
        _ => Cache::f32(cache.f32s()?, columns, head),
    })
}

/// Writes heads of `head_dim` to a row.
pub fn store(cache: &mut CpuTensor<'_>, row: usize, head_dim: usize, values: &[f32]) -> Result<()> {
    let (stride, columns, dtype) = (head_stride(cache, head_dim), columns(cache), cache.desc.dtype);
    let heads = values.len() / head_dim;
    let first = row * columns;
    let end = first + heads.saturating_sub(1) * stride + head_dim;
    // What is written and no more, since threads have the rest already. Pairs of blocks share bytes.
    let (first, range) = match dtype {
        DType::F16 => (first, 2 * first..2 * end),
        DType::Q8_0 => {
            let [first, end] = [first / PAIR, end.div_ceil(PAIR)];
            (first * PAIR, first * PAIR_BYTES..end * PAIR_BYTES)
        }
        _ => (first, 4 * first..4 * end),
    };
    let part = cache.part_mut(range)?;
    for (head, values) in values.chunks_exact(head_dim).enumerate() {
        let at = row * columns + head * stride - first;
        match dtype {
            DType::F16 => to_f16(values, &mut part[2 * at..]),
            DType::Q8_0 => kv_blocks::store(part, at, values),
            _ => part[4 * at..4 * (at + head_dim)].copy_from_slice(bytemuck::cast_slice(values)),
        }
    }
    Ok(())
}
