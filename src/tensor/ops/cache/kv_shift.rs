//! Moves rows of a KV cache to earlier positions when a context is full. Keys are rotated back by the number of positions that
//! they move (rotary position embeddings add up; Su et al. 2021), as in StreamingLLM (Xiao et al. 2023) and llama.cpp's context
//! shift.

use super::cache_dtype::{
    cache_columns, cache_defines, cache_dtype, cached, case_dtype, random_cache, set_cached, stored_tolerance,
};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: a cache [capacity, `cache_columns` of the heads] (changed), and, to rotate heads, the frequencies [n] of rope with
/// 2n ≤ head_dim (the rest of a head is only moved). `rows` rows are moved from `first_from` on to `first_to` on; the two ranges
/// don't overlap. The rest of the cache stays as it is.
#[derive(Clone, Copy, Debug)]
pub struct KvShift {
    /// The dimensions of a head.
    pub head_dim: usize,
    /// The first row that moves.
    pub first_from: usize,
    /// Its new position, at least `rows` before the old one.
    pub first_to: usize,
    /// The number of rows that move; at least one.
    pub rows: usize,
    /// With frequencies: pairs are neighbours (2i, 2i + 1), rather than (i, i + n).
    pub interleaved: bool,
}

impl Op for KvShift {
    on_cpu!();

    fn name(&self) -> &'static str {
        "kv_shift"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let wanted = [cache_dtype(inputs.first()), Some(DType::F32)];
        expect("kv_shift", inputs, &wanted[..inputs.len().clamp(1, 2)])?;
        let (capacity, columns) = inputs[0].shape.matrix()?;
        let fits = self.head_dim.is_multiple_of(2)
            && columns.is_multiple_of(cache_columns(inputs[0].dtype, 1, self.head_dim))
            && inputs.get(1).is_none_or(|frequencies| 2 * frequencies.shape.elements() <= self.head_dim)
            && self.rows > 0
            && self.first_to + self.rows <= self.first_from
            && self.first_from + self.rows <= capacity;
        if !fits {
            bail!(
                ShapeMismatch,
                "kv_shift: {} rows from {} to {} of a cache {} of heads of {}, {:?} frequencies",
                self.rows,
                self.first_from,
                self.first_to,
                inputs[0].shape,
                self.head_dim,
                inputs.get(1).map(|frequencies| frequencies.shape.elements())
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let head_columns = cache_columns(inputs[0].dtype, 1, self.head_dim);
        let kv_heads = columns / head_columns;
        let mut defines = vec![
            ("HEAD_DIM", Define::U32(self.head_dim as u32)),
            // Pairs of a head in the cache.
            ("SLOTS", Define::U32(head_columns as u32 / 2)),
            ("KEYS", Define::Flag),
        ];
        defines.extend(cache_defines(inputs.first()));
        if let Some(frequencies) = inputs.get(1) {
            defines.push(("ROPE", Define::Flag));
            defines.push(("ROPE_PAIRS", Define::U32(frequencies.shape.elements() as u32)));
            if self.interleaved {
                defines.push(("INTERLEAVED", Define::Flag));
            }
        }
        let heads = self.rows * kv_heads;
        Ok(Kernel {
            template: crate::shader!("kv_shift.wgsl"),
            modules: &[],
            defines,
            params: vec![heads as u32, kv_heads as u32, self.first_from as u32, self.first_to as u32],
            grid: grid_2d(heads, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for KvShift {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let row = columns / cache_columns(inputs[0].dtype, 1, self.head_dim) * self.head_dim;
        let frequencies = inputs.get(1).map_or(Ok(vec![]), HostTensor::to_f32)?;
        let mut values = cached(&inputs[0], self.head_dim)?;
        let mut moved = values[self.first_from * row..][..self.rows * row].to_vec();
        for head in moved.chunks_exact_mut(self.head_dim) {
            for (i, frequency) in frequencies.iter().enumerate() {
                let angle = f64::from((self.first_from - self.first_to) as f32 * frequency);
                let (a, b) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, i + frequencies.len()) };
                let (x, y) = (f64::from(head[a]), f64::from(head[b]));
                head[a] = (x * angle.cos() + y * angle.sin()) as f32;
                head[b] = (y * angle.cos() - x * angle.sin()) as f32;
            }
        }
        values[self.first_to * row..][..moved.len()].copy_from_slice(&moved);
        set_cached(&mut inputs[0], self.head_dim, &values);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(72);
    let mut cases = Vec::new();
    // kv_heads, head_dim, rotated, capacity, first_from, first_to, rows
    for (kv_heads, head_dim, rotated, capacity, first_from, first_to, rows) in [
        (1, 2, 2, 3, 2, 0, 1),
        (3, 80, 20, 40, 21, 4, 17),
        (1, 32, 32, 11, 7, 4, 3),
        (5, 96, 96, 23, 12, 1, 11),
        (8, 64, 0, 70, 37, 4, 33),
        (2, 128, 126, 1500, 752, 4, 748),
        (1, 256, 256, 37, 20, 0, 17),
    ] {
        for n in 0..6 {
            let (dtype, interleaved) = (case_dtype(n), n < 3);
            let mut inputs = vec![random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim)];
            if rotated > 0 {
                let frequency = |i: usize| 10000f32.powf(-2.0 * i as f32 / rotated as f32);
                let frequencies: Vec<f32> = (0..rotated / 2).map(frequency).collect();
                inputs.push(HostTensor::f32(&[rotated / 2], &frequencies));
            }
            let op = KvShift { head_dim, first_from, first_to, rows, interleaved };
            // What is only moved keeps its bits.
            let tolerance = if rotated > 0 { stored_tolerance(dtype, 2e-6) } else { 0.0 };
            cases.push(Case::new(op, inputs, tolerance));
        }
    }
    cases
}
