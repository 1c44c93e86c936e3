//! Attention in which every token looks at a span of the tokens of the pass, before it and behind it: that of an encoder, over
//! several texts at once. Grouped query heads and the softmax as in `attention`.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: q [tokens, heads · head_dim], k and v [tokens, kv_heads · head_dim], spans [tokens, 2] u32: the first token that a
/// token looks at, and the one behind the last; at least one, and none past the tokens. Output: [tokens, heads · head_dim].
/// Query head h uses key-value head h · kv_heads / heads.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSpans {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Scores are q·k · scale; usually 1 / √head_dim.
    pub scale: f32,
}

impl Op for AttentionSpans {
    fn name(&self) -> &'static str {
        "attention_spans"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("attention_spans", inputs, &[f32, f32, f32, Some(DType::U32)])?;
        let (tokens, q_dim) = inputs[0].shape.matrix()?;
        let fits = q_dim == self.heads * self.head_dim
            && inputs[1].shape.matrix()? == (tokens, self.kv_heads * self.head_dim)
            && self.heads.is_multiple_of(self.kv_heads)
            && inputs[1].shape == inputs[2].shape
            && inputs[3].shape.dims() == [tokens, 2];
        if !fits {
            bail!(
                ShapeMismatch,
                "attention_spans: q {}, k {}, v {}, spans {}, {} heads over {} of {}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                inputs[3].shape,
                self.heads,
                self.kv_heads,
                self.head_dim
            );
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        // Lanes share a head's dimensions, so more lanes than dimensions would idle.
        let most = self.head_dim.next_power_of_two().min(32) as u32;
        let lanes = subgroup_lanes(capabilities, most);
        let workgroup = lanes.unwrap_or(32);
        let mut defines = lanes_defines(workgroup, lanes);
        defines.push(("DIMS_PER_LANE", Define::U32((self.head_dim as u32).div_ceil(workgroup))));
        Ok(Kernel {
            template: include_str!("attention_spans.wgsl"),
            modules: &[],
            defines,
            params: vec![
                (tokens * self.heads) as u32,
                self.heads as u32,
                self.kv_heads as u32,
                self.head_dim as u32,
                tokens as u32,
                self.scale.to_bits(),
            ],
            grid: grid_2d(tokens * self.heads, capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (q, k, v) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let spans = inputs[3].to_u32()?;
        let (hd, kv_dim) = (self.head_dim, self.kv_heads * self.head_dim);
        let mut out = vec![0f32; q.len()];
        for (token, span) in spans.chunks_exact(2).enumerate() {
            let (begin, end) = (span[0] as usize, span[1] as usize);
            for head in 0..self.heads {
                let at = (token * self.heads + head) * hd;
                let kv_at = head / (self.heads / self.kv_heads) * hd;
                let dot = |p: usize| -> f64 {
                    let k = &k[p * kv_dim + kv_at..][..hd];
                    q[at..at + hd].iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum()
                };
                let scores: Vec<f64> = (begin..end).map(|p| dot(p) * f64::from(self.scale)).collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                for d in 0..hd {
                    let values = (begin..end).map(|p| f64::from(v[p * kv_dim + kv_at + d]));
                    let sum: f64 = scores.iter().zip(values).map(|(score, v)| (score - largest).exp() * v).sum();
                    out[at + d] = (sum / total) as f32;
                }
            }
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(41);
    // heads, kv_heads, head_dim, lengths of the texts
    let cases: [(usize, usize, usize, &[usize]); 6] = [
        (1, 1, 2, &[1]),
        (4, 2, 16, &[3, 1, 7]),
        (12, 12, 32, &[19, 5, 64, 2]),
        (2, 1, 80, &[33]),
        (3, 3, 64, &[130, 1, 1, 129]),
        (2, 2, 256, &[7, 9]),
    ];
    cases
        .iter()
        .map(|&(heads, kv_heads, head_dim, lengths)| {
            let tokens: usize = lengths.iter().sum();
            let mut begin = 0;
            let mut spans = Vec::new();
            for &length in lengths {
                for _ in 0..length {
                    spans.extend([begin as u32, (begin + length) as u32]);
                }
                begin += length;
            }
            let mut q = rng.tensor(&[tokens, heads * head_dim]);
            // Large enough that the softmax is far from flat.
            let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
            q.set_f32(&sharp);
            let inputs = vec![
                q,
                rng.tensor(&[tokens, kv_heads * head_dim]),
                rng.tensor(&[tokens, kv_heads * head_dim]),
                HostTensor::u32(&[tokens, 2], &spans),
            ];
            let scale = 1.0 / (head_dim as f32).sqrt();
            Case::new(AttentionSpans { heads, kv_heads, head_dim, scale }, inputs, 1e-5)
        })
        .collect()
}
