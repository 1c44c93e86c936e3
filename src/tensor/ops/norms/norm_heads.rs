//! RMS norm (Zhang, Sennrich 2019) of each head of queries and of keys, in place, before rope (QK-norm: Henry et al. 2020; in this
//! form Qwen3 and Gemma 3), or of all heads together (OLMo 2). Values may be normed too, without weights (Gemma 4).

use rillm_cpu_kernels::rms_norm;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::cpu::fits;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns] (changed; a token's heads of queries, then of keys, then of values, then columns that stay as they are),
/// weights [query_length + key_length] (for queries, then for keys; those of values are one).
#[derive(Clone, Copy, Debug)]
pub struct NormHeads {
    /// ε in the formula.
    pub epsilon: f32,
    /// Heads of queries in x, or 1 for a norm over all of them.
    pub queries: usize,
    /// The same for keys.
    pub keys: usize,
    /// The same for values.
    pub values: usize,
    /// Elements of a head of queries, or of all of them.
    pub query_length: usize,
    /// The same for keys, and for values.
    pub key_length: usize,
}

impl Op for NormHeads {
    on_cpu!();

    fn name(&self) -> &'static str {
        "norm_heads"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("norm_heads", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        let fits = self.queries * self.query_length + (self.keys + self.values) * self.key_length <= columns
            && self.queries + self.keys + self.values > 0
            && inputs[1].shape.dims() == [self.query_length + self.key_length];
        if !fits {
            bail!(
                ShapeMismatch,
                "norm_heads: x {}, weights {}, {} heads of {}, {} and {} of {}",
                inputs[0].shape,
                inputs[1].shape,
                self.queries,
                self.query_length,
                self.keys,
                self.values,
                self.key_length
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        let weighted = self.queries + self.keys;
        let heads = weighted + self.values;
        let numbers = [tokens * heads, heads, weighted, self.queries, self.query_length, self.key_length, columns];
        Ok(Kernel {
            template: crate::shader!("norm_heads.wgsl"),
            modules: &[],
            // A workgroup is one team: its rows are loops of one length, so lanes stay together.
            defines: lanes_defines(lanes.unwrap_or(32), lanes),
            params: numbers.map(|number| number as u32).into_iter().chain([self.epsilon.to_bits()]).collect(),
            grid: grid_2d(tokens * heads, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for NormHeads {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let weights = inputs[1].to_f32()?;
        let mut x = inputs[0].to_f32()?;
        for row in x.chunks_exact_mut(columns) {
            let (queries, keys) = row.split_at_mut(self.queries * self.query_length);
            let (of_queries, of_keys) = weights.split_at(self.query_length);
            let queries = queries.chunks_exact_mut(self.query_length.max(1)).map(|head| (head, of_queries));
            let ones = vec![1.0; self.key_length];
            let keys = keys.chunks_exact_mut(self.key_length.max(1)).take(self.keys + self.values).enumerate();
            let keys = keys.map(|(index, head)| (head, if index < self.keys { of_keys } else { &ones[..] }));
            for (head, weight) in queries.chain(keys) {
                let mean = head.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / head.len() as f64;
                let scale = 1.0 / (mean + f64::from(self.epsilon)).sqrt();
                for (x, w) in head.iter_mut().zip(weight) {
                    *x = (f64::from(*x) * scale * f64::from(*w)) as f32;
                }
            }
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, weights] = &mut tensors.inputs[..] else { bail!(Internal, "norm_heads without two inputs") };
        let (_, columns) = x.desc.shape.matrix()?;
        let (of_queries, of_keys) = weights.f32s()?.split_at(self.query_length);
        let ones = vec![1.0; self.key_length];
        for row in x.f32s_mut()?.chunks_exact_mut(columns) {
            let (queries, keys) = row.split_at_mut(self.queries * self.query_length);
            let queries = queries.chunks_exact_mut(self.query_length.max(1)).map(|head| (head, of_queries));
            let keys = keys.chunks_exact_mut(self.key_length.max(1)).take(self.keys + self.values).enumerate();
            let keys = keys.map(|(index, head)| (head, if index < self.keys { of_keys } else { &ones[..] }));
            for (head, weight) in queries.chain(keys) {
                let from = head.to_vec();
                fits(rms_norm(&from, &weight[..from.len()], self.epsilon, head))?;
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(78);
    // tokens, queries, keys, rest, head_dim
    let shapes = [
        (1, 1, 1, 1, 2),
        (1, 16, 8, 8, 128),
        (5, 3, 0, 0, 80),
        (37, 0, 2, 2, 64),
        (2, 8, 1, 1, 256),
        (70, 128, 8, 8, 64),
    ]
    .map(|(tokens, queries, keys, rest, head_dim)| {
        let lengths = (head_dim, head_dim);
        let op = NormHeads { epsilon: 1e-6, queries, keys, values: 0, query_length: lengths.0, key_length: lengths.1 };
        let x = rng.tensor(&[tokens, (queries + keys + rest) * head_dim]);
        (op, x)
    })
    .into_iter()
    // With values; values alone; queries of a layer without keys.
    .chain([(1, 8, 2, 2, 512), (5, 4, 1, 1, 80), (3, 0, 0, 2, 64)].map(|(tokens, queries, keys, values, head_dim)| {
        let op = NormHeads { epsilon: 1e-6, queries, keys, values, query_length: head_dim, key_length: head_dim };
        (op, rng.tensor(&[tokens, (queries + keys + values) * head_dim]))
    }))
    .chain([(1, 8, 512), (4, 3, 16)].map(|(tokens, queries, head_dim)| {
        let op = NormHeads { epsilon: 1e-6, queries, keys: 0, values: 0, query_length: head_dim, key_length: 0 };
        (op, rng.tensor(&[tokens, queries * head_dim]))
    }))
    .collect::<Vec<_>>()
    .into_iter()
    // All heads together, more of queries than of keys.
    .chain([(1, 4096, 512), (5, 96, 32), (3, 0, 160)].map(|(tokens, query_length, key_length)| {
        let queries = usize::from(query_length > 0);
        let op =
            NormHeads { epsilon: 1e-6, queries, keys: 1, values: 0, query_length: query_length.max(1), key_length };
        (op, rng.tensor(&[tokens, query_length + 2 * key_length]))
    }))
    .collect::<Vec<_>>();
    shapes
        .into_iter()
        .map(|(op, x)| Case::new(op, vec![x, rng.tensor(&[op.query_length + op.key_length])], 1e-5))
        .collect()
}
