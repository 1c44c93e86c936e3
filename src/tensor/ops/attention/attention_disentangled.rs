//! Attention of an encoder whose scores add how content and distance fit (disentangled attention, He et al. 2021). The rest is
//! `attention_spans`.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::on_cpu;
use crate::tensor::ops::{Attention, AttentionSpans};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs and output as of `AttentionSpans` with as many key heads as query heads, and after the spans: keys of distances and queries of distances, [buckets, heads ·
/// head_dim] each, and the bucket of each distance [2 · reach + 1] u32, from −reach to reach tokens before another one. A score is
/// (q·k + q·(key of the distance) + k·(query of the distance)) · scale; usually the scale is 1 / √(3 · head_dim).
#[derive(Clone, Copy, Debug)]
pub struct AttentionDisentangled {
    /// Heads.
    pub heads: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// The factor of the scores.
    pub scale: f32,
}

impl AttentionDisentangled {
    fn spans(&self) -> AttentionSpans {
        let Self { heads, head_dim, scale } = *self;
        AttentionSpans { heads, kv_heads: heads, head_dim, scale, reach: None }
    }
}

impl Op for AttentionDisentangled {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention_disentangled"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let [of_attention @ .., keys, queries, buckets] = inputs else {
            bail!(ShapeMismatch, "attention_disentangled takes 7 inputs, not {}", inputs.len());
        };
        let columns = self.heads * self.head_dim;
        let fits =
            |table: &Desc| table.dtype == DType::F32 && table.shape.matrix().is_ok_and(|(_, width)| width == columns);
        let is_odd = buckets.shape.dims().len() == 1 && !buckets.shape.elements().is_multiple_of(2);
        if !fits(keys) || keys.shape != queries.shape || !fits(queries) || buckets.dtype != DType::U32 || !is_odd {
            bail!(
                ShapeMismatch,
                "attention_disentangled: keys {}, queries {} and buckets {} of distances, {} heads of {}",
                keys.shape,
                queries.shape,
                buckets.shape,
                self.heads,
                self.head_dim
            );
        }
        self.spans().infer(of_attention)
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let mut kernel = self.spans().kernel(&inputs[..4], outputs, capabilities)?;
        kernel.defines.push(("DISENTANGLED", Define::Flag));
        kernel.defines.push(("REACH", Define::U32(inputs[6].shape.elements() as u32 / 2)));
        Ok(kernel)
    }
}

impl Reference for AttentionDisentangled {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let spans = inputs[3].to_u32()?;
        let (q, k) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let (keys, queries, buckets) = (inputs[4].to_f32()?, inputs[5].to_f32()?, inputs[6].to_u32()?);
        let reach = buckets.len() as i64 / 2;
        let (columns, dim) = (self.heads * self.head_dim, self.head_dim);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let added = |token: usize, head: usize, p: usize| {
            let distance = (token as i64 - p as i64).clamp(-reach, reach) + reach;
            let row = buckets[distance as usize] as usize * columns + head * dim;
            let query = &q[token * columns + head * dim..][..dim];
            let key = &k[p * columns + head * dim..][..dim];
            (dot(query, &keys[row..][..dim]) + dot(key, &queries[row..][..dim])) * f64::from(self.scale)
        };
        let Self { heads, head_dim, scale } = *self;
        let attention = Attention { heads, kv_heads: heads, head_dim, scale, window: None, softcap: None };
        let seen = |token: usize| spans[2 * token] as usize..spans[2 * token + 1] as usize;
        attention.reference_with(&inputs[..4], seen, added, |_| None)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(44);
    // heads, head_dim, lengths of the texts, reach, rows
    let cases: [(usize, usize, &[usize], usize, usize); 3] =
        [(1, 2, &[1], 0, 1), (3, 12, &[9, 1, 14], 13, 8), (4, 64, &[70, 3], 40, 32)];
    cases
        .iter()
        .map(|&(heads, head_dim, lengths, reach, rows)| {
            let tokens: usize = lengths.iter().sum();
            let mut begin = 0;
            let mut spans = Vec::new();
            for &length in lengths {
                for _ in 0..length {
                    spans.extend([begin as u32, (begin + length) as u32]);
                }
                begin += length;
            }
            let columns = heads * head_dim;
            let buckets: Vec<u32> = (0..=2 * reach).map(|at| (at * rows / (2 * reach + 1)) as u32).collect();
            let inputs = vec![
                rng.tensor(&[tokens, columns]),
                rng.tensor(&[tokens, columns]),
                rng.tensor(&[tokens, columns]),
                HostTensor::u32(&[tokens, 2], &spans),
                rng.tensor(&[rows, columns]),
                rng.tensor(&[rows, columns]),
                HostTensor::u32(&[buckets.len()], &buckets),
            ];
            let scale = 1.0 / (3.0 * head_dim as f32).sqrt();
            Case::new(AttentionDisentangled { heads, head_dim, scale }, inputs, 1e-5)
        })
        .collect()
}
