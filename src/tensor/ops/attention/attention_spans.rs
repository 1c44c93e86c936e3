//! Attention of an encoder over several texts at once: every token attends to a span of the pass's tokens, before and after it. Or of a
//! decoder over another text, whose keys and values lie in a cache: all tokens attend to one span of it. Grouped query heads and the softmax
//! as in `attention`.

use rillm_cpu_kernels::{Added, Seen};

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::attention::{Stays, attention};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Attention;
use crate::tensor::ops::cache::cache_dtype::{cache_columns, cache_dtype, case_dtype, random_cache};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: q [tokens, heads · head_dim], k and v [positions, kv_heads · head_dim] or the columns of a cache, spans [tokens, 2] u32: the range
/// of positions that a token attends to, first and end; at least one, and none past the positions. With spans [1, 2] all tokens attend to
/// the same. Output: [tokens, heads · head_dim].
/// Query head h uses key-value head h · kv_heads / heads. With a `reach` there is one input more, [heads, 2 · reach + 1]: what is added to
/// the score of a token and one that is −reach to reach tokens after it; those further away count as the furthest.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSpans {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Scores are q·k · scale; usually 1 / √head_dim.
    pub scale: f32,
    /// The largest distance for which there is a number, if any are added by distance (ALiBi, Press et al. 2021; T5's buckets, Raffel et al.
    /// 2020).
    pub reach: Option<usize>,
}

impl AttentionSpans {
    /// The same for tokens that attend to those before them.
    fn attention(&self) -> Attention {
        let Self { heads, kv_heads, head_dim, scale, .. } = *self;
        Attention { heads, kv_heads, head_dim, scale, window: None, softcap: None }
    }
}

impl Op for AttentionSpans {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention_spans"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, cache) = (Some(DType::F32), cache_dtype(inputs.get(1)));
        let wanted = [f32, cache, cache, Some(DType::U32), f32];
        expect("attention_spans", inputs, &wanted[..4 + usize::from(self.reach.is_some())])?;
        if let Some(reach) = self.reach
            && inputs[4].shape.dims() != [self.heads, 2 * reach + 1]
        {
            bail!(
                ShapeMismatch,
                "attention_spans: numbers {} for {} heads and distances up to {reach}",
                inputs[4].shape,
                self.heads
            );
        }
        let (tokens, q_dim) = inputs[0].shape.matrix()?;
        let (positions, columns) = inputs[1].shape.matrix()?;
        let spans = inputs[3].shape.dims();
        let fits = q_dim == self.heads * self.head_dim
            && columns == cache_columns(inputs[1].dtype, self.kv_heads, self.head_dim)
            && self.heads.is_multiple_of(self.kv_heads)
            && inputs[1].shape == inputs[2].shape
            && (spans == [1, 2] || (spans == [tokens, 2] && positions == tokens))
            && (positions == tokens || self.reach.is_none());
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

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let mut kernel = self.attention().kernel(inputs, outputs, capabilities)?;
        kernel.defines.push(("SPANS", Define::Flag));
        if inputs[3].shape.dims() == [1, 2] && inputs[0].shape.matrix()?.0 > 1 {
            kernel.defines.push(("ONE_SPAN", Define::Flag));
        }
        if let Some(reach) = self.reach {
            kernel.defines.push(("PER_HEAD", Define::Flag));
            kernel.defines.push(("DISTANCES", Define::Flag));
            kernel.defines.push(("REACH", Define::U32(reach as u32)));
        }
        Ok(kernel)
    }
}

impl Reference for AttentionSpans {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let spans = inputs[3].to_u32()?;
        let added: Vec<f32> = self.reach.map_or(Ok(Vec::new()), |_| inputs[4].to_f32())?;
        let reach = self.reach.unwrap_or(0) as i64;
        let of_distance = |token: usize, head: usize, p: usize| {
            let at = (p as i64 - token as i64).clamp(-reach, reach) + reach;
            added.get(head * (2 * reach as usize + 1) + at as usize).map_or(0.0, |x| f64::from(*x))
        };
        let of = |token: usize| if spans.len() == 2 { 0 } else { token };
        let seen = |token: usize| spans[2 * of(token)] as usize..spans[2 * of(token) + 1] as usize;
        self.attention().reference_with(inputs, seen, of_distance, |_| None)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [q, k, v, spans, more @ ..] = &tensors.inputs[..] else {
            bail!(Internal, "attention_spans without four inputs")
        };
        let added = match (self.reach, more) {
            (Some(reach), [numbers]) => Added::Distances { numbers: numbers.f32s()?, reach },
            _ => Added::Nothing,
        };
        let (tokens, _) = q.desc.shape.matrix()?;
        let spans = spans.u32s()?.chunks_exact(2).cycle().take(tokens).enumerate();
        let seen: Vec<Seen> = spans.map(|(own, span)| Seen { rows: span[0] as usize..span[1] as usize, own }).collect();
        let out =
            attention(tensors.team, &self.attention().on_cpu(added), None, q.f32s()?, [k, v], Stays::Passing, &seen)?;
        tensors.output(0)?.write_f32s(&out)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(41);
    // heads, kv_heads, head_dim, lengths of the texts
    let cases: [(usize, usize, usize, &[usize]); 7] = [
        (1, 1, 2, &[1]),
        (4, 2, 16, &[3, 1, 7]),
        (12, 12, 32, &[19, 5, 64, 2]),
        (2, 1, 80, &[33]),
        (3, 3, 64, &[130, 1, 1, 129]),
        (2, 2, 256, &[7, 9]),
        (128, 8, 64, &[5, 2]),
    ];
    let mut all: Vec<Case> = cases
        .iter()
        .enumerate()
        .map(|(index, &(heads, kv_heads, head_dim, lengths))| {
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
            let mut inputs = vec![
                q,
                rng.tensor(&[tokens, kv_heads * head_dim]),
                rng.tensor(&[tokens, kv_heads * head_dim]),
                HostTensor::u32(&[tokens, 2], &spans),
            ];
            let scale = 1.0 / (head_dim as f32).sqrt();
            // Distances in every other case, further and less far than the texts are long.
            let reach = [None, Some(3), None, Some(40), Some(200)][index % 5];
            if let Some(reach) = reach {
                inputs.push(rng.tensor(&[heads, 2 * reach + 1]));
            }
            Case::new(AttentionSpans { heads, kv_heads, head_dim, scale, reach }, inputs, 1e-5)
        })
        .collect();
    // Of another text, in a cache: tokens, heads, kv_heads, head_dim, capacity, length of the text
    let others = [(1, 4, 4, 10, 40, 23), (3, 6, 2, 64, 70, 70), (5, 2, 2, 16, 9, 1)];
    for (index, (tokens, heads, kv_heads, head_dim, capacity, length)) in others.into_iter().enumerate() {
        let dtype = case_dtype(index);
        let mut q = rng.tensor(&[tokens, heads * head_dim]);
        let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
        q.set_f32(&sharp);
        let [k, v] = [(); 2].map(|()| random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim));
        let inputs = vec![q, k, v, HostTensor::u32(&[1, 2], &[0, length])];
        let scale = 1.0 / (head_dim as f32).sqrt();
        all.push(Case::new(AttentionSpans { heads, kv_heads, head_dim, scale, reach: None }, inputs, 1e-5));
    }
    all
}
