//! RMS norm (Zhang, Sennrich 2019) of each head of queries and of keys, in place, before rope (QK-norm: Henry et al. 2020; in this
//! form Qwen3 and Gemma 3).

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: x [tokens, columns] (changed; of a token, the heads of queries, those of keys, and what is left alone), weights
/// [2 · head_dim] (that of queries, then that of keys).
#[derive(Clone, Copy, Debug)]
pub struct NormHeads {
    pub epsilon: f32,
    pub head_dim: usize,
    /// Heads of queries and of keys that x has, from its first column on.
    pub queries: usize,
    pub keys: usize,
}

impl Op for NormHeads {
    fn name(&self) -> &'static str {
        "norm_heads"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("norm_heads", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        let fits = (self.queries + self.keys) * self.head_dim <= columns
            && self.queries + self.keys > 0
            && columns.is_multiple_of(self.head_dim)
            && inputs[1].shape.dims() == [2 * self.head_dim];
        if !fits {
            bail!(
                ShapeMismatch,
                "norm_heads: x {}, weights {}, {} and {} heads of {}",
                inputs[0].shape,
                inputs[1].shape,
                self.queries,
                self.keys,
                self.head_dim
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        let heads = self.queries + self.keys;
        let numbers = [tokens * heads, heads, self.queries, self.head_dim, columns];
        Ok(Kernel {
            template: include_str!("norm_heads.wgsl"),
            modules: &[],
            // A workgroup is one team: its rows are loops of one length, so that lanes stay together.
            defines: lanes_defines(lanes.unwrap_or(32), lanes),
            params: numbers.map(|number| number as u32).into_iter().chain([self.epsilon.to_bits()]).collect(),
            grid: grid_2d(tokens * heads, capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let weights = inputs[1].to_f32()?;
        let mut x = inputs[0].to_f32()?;
        for row in x.chunks_exact_mut(columns) {
            let heads = row.chunks_exact_mut(self.head_dim).take(self.queries + self.keys);
            for (index, head) in heads.enumerate() {
                let weight = &weights[if index < self.queries { 0 } else { self.head_dim }..][..self.head_dim];
                let mean = head.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / self.head_dim as f64;
                let scale = 1.0 / (mean + f64::from(self.epsilon)).sqrt();
                for (x, w) in head.iter_mut().zip(weight) {
                    *x = (f64::from(*x) * scale * f64::from(*w)) as f32;
                }
            }
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(78);
    // tokens, queries, keys, rest, head_dim
    [(1, 1, 1, 1, 2), (1, 16, 8, 8, 128), (5, 3, 0, 0, 80), (37, 0, 2, 2, 64), (2, 8, 1, 1, 256), (70, 128, 8, 8, 64)]
        .map(|(tokens, queries, keys, rest, head_dim)| {
            let op = NormHeads { epsilon: 1e-6, head_dim, queries, keys };
            let x = rng.tensor(&[tokens, (queries + keys + rest) * head_dim]);
            Case::new(op, vec![x, rng.tensor(&[2 * head_dim])], 1e-5)
        })
        .into()
}
