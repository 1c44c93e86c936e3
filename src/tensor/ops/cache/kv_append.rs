//! Writes new keys and values into the KV cache, at the position that the state holds.

use super::cache_dtype::{
    cache_columns, cache_defines, cache_dtype, cached, case_dtype, random_cache, set_cached, stored_tolerance,
};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::cache::store;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: k and v [tokens, kv_dim], k_cache and v_cache [capacity, kv_dim] (changed; in q8_0 `cache_columns` of the heads), state
/// [4] u32 (state[0] is the position of the first token). Tokens past the capacity are not written; the caller checks that there is
/// room.
#[derive(Clone)]
pub struct KvAppend {
    /// The dimensions of a head.
    pub head_dim: usize,
}

impl Op for KvAppend {
    on_cpu!();

    fn name(&self) -> &'static str {
        "kv_append"
    }

    fn mutates(&self) -> &'static [usize] {
        &[2, 3]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, cache) = (Some(DType::F32), cache_dtype(inputs.get(2)));
        expect("kv_append", inputs, &[f32, f32, cache, cache, Some(DType::U32)])?;
        let (_, kv_dim) = inputs[0].shape.matrix()?;
        let (_, cache_dim) = inputs[2].shape.matrix()?;
        let is_q8_0 = inputs[2].dtype == DType::Q8_0;
        let fits = inputs[0].shape == inputs[1].shape
            && inputs[2].shape == inputs[3].shape
            && kv_dim.is_multiple_of(self.head_dim)
            && cache_dim == cache_columns(inputs[2].dtype, kv_dim / self.head_dim, self.head_dim)
            && kv_dim.is_multiple_of(2)
            && (!is_q8_0 || self.head_dim.is_multiple_of(2));
        if !fits {
            bail!(
                ShapeMismatch,
                "kv_append: k {}, cache {} of {}, heads of {}; wanted an even number of columns, in q8_0 of each head",
                inputs[0].shape,
                inputs[2].shape,
                inputs[2].dtype.name(),
                self.head_dim
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, kv_dim) = inputs[0].shape.matrix()?;
        let (capacity, cache_dim) = inputs[2].shape.matrix()?;
        // Without gaps between heads, a row can be treated as one head.
        let head_dim = if inputs[2].dtype == DType::Q8_0 { self.head_dim } else { kv_dim };
        let items = tokens * cache_dim / 2;
        Ok(Kernel {
            template: crate::shader!("kv_append.wgsl"),
            modules: &[],
            defines: cache_defines(inputs.get(2))
                .into_iter()
                .chain([("KEYS", Define::Flag), ("VALUES", Define::Flag)])
                .collect(),
            params: vec![items as u32, (kv_dim / head_dim) as u32, head_dim as u32, capacity as u32],
            grid: grid_2d(items.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for KvAppend {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, kv_dim) = inputs[0].shape.matrix()?;
        let start = inputs[4].to_u32()?[0] as usize * kv_dim;
        for (new, cache) in [(0, 2), (1, 3)] {
            let new = inputs[new].to_f32()?;
            let mut values = cached(&inputs[cache], self.head_dim)?;
            // Rows past the end of the cache are left out.
            for (value, new) in values.iter_mut().skip(start).zip(new) {
                *value = new;
            }
            set_cached(&mut inputs[cache], self.head_dim, &values);
        }
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [k, v, k_cache, v_cache, state] = &mut tensors.inputs[..] else {
            bail!(Internal, "kv_append without five inputs")
        };
        let (_, kv_dim) = k.desc.shape.matrix()?;
        let first = state.u32s()?[0] as usize;
        for (new, cache) in [(k, k_cache), (v, v_cache)] {
            let capacity = cache.desc.shape.dims()[0];
            for (position, row) in (first..capacity).zip(new.f32s()?.chunks_exact(kv_dim)) {
                store(cache, position, self.head_dim, row)?;
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(9);
    // tokens, kv_heads, head_dim, capacity, position
    let shapes = [
        (1, 1, 2, 1, 0),
        (1, 1, 64, 10, 9),
        (7, 1, 38, 50, 3),
        (3, 3, 80, 7, 5),
        (5, 3, 32, 9, 2),
        (129, 2, 128, 300, 171),
        (3, 128, 64, 9, 5),
    ];
    let cases = shapes.iter().flat_map(|shape| [0, 1, 2].map(|n| (shape, case_dtype(n))));
    cases
        .map(|(&(tokens, kv_heads, head_dim, capacity, position), dtype)| {
            let mut inputs =
                vec![rng.tensor(&[tokens, kv_heads * head_dim]), rng.tensor(&[tokens, kv_heads * head_dim])];
            inputs.extend([(); 2].map(|()| random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim)));
            inputs.push(HostTensor::u32(&[4], &[position, 0, 0, 0]));
            // WGSL does not say to which of two neighbours a number is rounded.
            Case::new(KvAppend { head_dim }, inputs, stored_tolerance(dtype, 0.0))
        })
        .collect()
}
