//! Writes new keys and values into the KV cache, at the position that the state holds.

use super::cache_dtype::{cache_defines, cache_dtype};
use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: k and v [tokens, kv_dim], k_cache and v_cache [capacity, kv_dim] (changed), state [4] u32 (state[0] is the
/// position of the first token). Tokens past the capacity are not written; the caller checks that there is room.
pub struct KvAppend;

impl Op for KvAppend {
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
        let fits = inputs[0].shape == inputs[1].shape
            && inputs[2].shape == inputs[3].shape
            && kv_dim == cache_dim
            && kv_dim.is_multiple_of(2);
        if !fits {
            bail!(
                ShapeMismatch,
                "kv_append: k {}, cache {}; wanted an even number of columns",
                inputs[0].shape,
                inputs[2].shape
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, kv_dim) = inputs[0].shape.matrix()?;
        let pairs = inputs[0].shape.elements() / 2;
        Ok(Kernel {
            template: include_str!("kv_append.wgsl"),
            modules: &[],
            defines: cache_defines(inputs.get(2)).into_iter().collect(),
            params: vec![pairs as u32, kv_dim as u32 / 2, inputs[2].shape.elements() as u32 / 2],
            grid: grid_2d(pairs.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, kv_dim) = inputs[0].shape.matrix()?;
        let start = inputs[4].to_u32()?[0] as usize * kv_dim;
        for (new, cache) in [(0, 2), (1, 3)] {
            let new = inputs[new].to_f32()?;
            let mut values = inputs[cache].to_f32()?;
            // What lies past the end of the cache is left out.
            for (value, new) in values.iter_mut().skip(start).zip(new) {
                *value = new;
            }
            inputs[cache].set_f32(&values);
        }
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(9);
    // tokens, kv_dim, capacity, position
    [(1, 2, 1, 0), (1, 64, 10, 9), (7, 38, 50, 3), (129, 256, 300, 171), (3, 8192, 9, 5)]
        .iter()
        .flat_map(|shape| [(shape, false), (shape, true)])
        .map(|(&(tokens, kv_dim, capacity, position), is_f16)| {
            let mut inputs = vec![rng.tensor(&[tokens, kv_dim]), rng.tensor(&[tokens, kv_dim])];
            inputs.extend([(); 2].map(|()| match is_f16 {
                true => rng.f16(&[capacity, kv_dim]),
                false => rng.tensor(&[capacity, kv_dim]),
            }));
            inputs.push(HostTensor::u32(&[4], &[position, 0, 0, 0]));
            // WGSL leaves open to which of two neighbours a number is rounded.
            Case::new(KvAppend, inputs, if is_f16 { 1e-3 } else { 0.0 })
        })
        .collect()
}
