//! Attention of an encoder over several texts at once: every token attends to a span of the pass's tokens, before and after it.
//! Grouped query heads and the softmax as in `attention`.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::expect;
use crate::tensor::ops::Attention;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: q [tokens, heads · head_dim], k and v [tokens, kv_heads · head_dim], spans [tokens, 2] u32: the range of tokens
/// that a token attends to, first and end; at least one token, and none past the tokens. Output: [tokens, heads · head_dim].
/// Query head h uses key-value head h · kv_heads / heads.
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
}

impl AttentionSpans {
    /// The same for tokens that attend to those before them.
    fn attention(&self) -> Attention {
        let Self { heads, kv_heads, head_dim, scale } = *self;
        Attention { heads, kv_heads, head_dim, scale, window: None, softcap: None }
    }
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

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let mut kernel = self.attention().kernel(inputs, outputs, capabilities)?;
        kernel.defines.push(("SPANS", Define::Flag));
        Ok(kernel)
    }
}

impl Reference for AttentionSpans {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let spans = inputs[3].to_u32()?;
        self.attention().reference_over(inputs, |token| spans[2 * token] as usize..spans[2 * token + 1] as usize)
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
