//! Attention with numbers of each head: a score that takes its part of the softmax and has no value (attention sinks, Xiao et al. 2023, as
//! gpt-oss learns them), the slope by which positions further back count less (ALiBi, Press et al. 2021), or what each distance adds to a
//! score (T5's buckets, Raffel et al. 2020). The rest is `attention`.

use rillm_cpu_kernels::Added;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::attention::{Stays, attention, causal};
use crate::tensor::op::on_cpu;
use crate::tensor::ops::Attention;
use crate::tensor::ops::cache::cache_dtype::{case_dtype, random_cache};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// What a head's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerHead {
    /// The score of a position without a value.
    Sink,
    /// What each step back takes from a score.
    Slope,
    /// What is added to the score of a token and one that is −reach to reach tokens after it; those further away count as the furthest. None
    /// is after it, but the table is that of `AttentionSpans`.
    Distances {
        /// The largest distance with a number.
        reach: usize,
    },
}

/// Inputs and output as of `Attention`, and after the state a number for each head, [heads]; of distances [heads, 2 · reach + 1].
#[derive(Clone, Copy, Debug)]
pub struct AttentionPerHead {
    /// The rest.
    pub attention: Attention,
    /// What the numbers are.
    pub numbers: PerHead,
}

impl Op for AttentionPerHead {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention_per_head"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let [of_attention @ .., numbers] = inputs else {
            bail!(ShapeMismatch, "attention_per_head takes 5 inputs, not 0");
        };
        let heads = self.attention.heads;
        let wanted = match self.numbers {
            PerHead::Sink | PerHead::Slope => vec![heads],
            PerHead::Distances { reach } => vec![heads, 2 * reach + 1],
        };
        if numbers.dtype != DType::F32 || numbers.shape.dims() != wanted {
            bail!(
                ShapeMismatch,
                "attention_per_head: numbers {:?} {}, wanted {wanted:?} of F32",
                numbers.dtype,
                numbers.shape
            );
        }
        self.attention.infer(of_attention)
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let mut kernel = self.attention.kernel(inputs, outputs, capabilities)?;
        kernel.defines.push(("PER_HEAD", Define::Flag));
        kernel.defines.extend(match self.numbers {
            PerHead::Sink => vec![("SINKS", Define::Flag)],
            PerHead::Slope => vec![("SLOPES", Define::Flag)],
            PerHead::Distances { reach } => vec![("DISTANCES", Define::Flag), ("REACH", Define::U32(reach as u32))],
        });
        Ok(kernel)
    }
}

impl Reference for AttentionPerHead {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let first = inputs[3].to_u32()?[0] as usize;
        let numbers: Vec<f64> = inputs[4].to_f32()?.into_iter().map(f64::from).collect();
        let seen = |token: usize| {
            let end = first + token + 1;
            self.attention.window.map_or(0, |window| end.saturating_sub(window))..end
        };
        let added = |token: usize, head: usize, p: usize| {
            let back = first + token - p;
            match self.numbers {
                PerHead::Sink => 0.0,
                PerHead::Slope => -numbers[head] * back as f64,
                PerHead::Distances { reach } => numbers[head * (2 * reach + 1) + reach - back.min(reach)],
            }
        };
        let sink = |head: usize| (self.numbers == PerHead::Sink).then(|| numbers[head]);
        self.attention.reference_with(inputs, seen, added, sink)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [q, k, v, state, numbers] = &tensors.inputs[..] else {
            bail!(Internal, "attention_per_head without five inputs")
        };
        let numbers = numbers.f32s()?;
        let (added, sinks) = match self.numbers {
            PerHead::Sink => (Added::Nothing, Some(numbers)),
            PerHead::Slope => (Added::Slopes(numbers), None),
            PerHead::Distances { reach } => (Added::Distances { numbers, reach }, None),
        };
        let seen = causal(self.attention.window, state.u32s()?[0] as usize, q.desc.shape.matrix()?.0);
        let out = attention(tensors.team, &self.attention.on_cpu(added), sinks, q.f32s()?, [k, v], Stays::Kept, &seen)?;
        tensors.output(0)?.write_f32s(&out)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(86);
    let mut cases = Vec::new();
    // tokens, heads, kv_heads, head_dim, capacity, position, window
    for (tokens, heads, kv_heads, head_dim, capacity, position, window) in [
        (1, 1, 1, 2, 1, 0, None),
        (3, 8, 2, 64, 97, 13, Some(5)),
        (1, 6, 3, 80, 300, 255, None),
        (9, 4, 4, 32, 64, 7, None),
    ] {
        for numbers in [PerHead::Sink, PerHead::Slope, PerHead::Distances { reach: 6 }] {
            let mut q = rng.tensor(&[tokens, heads * head_dim]);
            let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
            q.set_f32(&sharp);
            let dtype = case_dtype(cases.len() / 3);
            let [k_cache, v_cache] = [(); 2].map(|()| random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim));
            // Sinks below and above all scores; slopes from 1 down.
            let of_head = |head: usize| match numbers {
                PerHead::Sink => [2.0, -30.0, 0.0, 12.0][head % 4],
                PerHead::Slope => 0.5f32.powi(head as i32),
                PerHead::Distances { .. } => 0.0,
            };
            let per_head: Vec<f32> = (0..heads).map(of_head).collect();
            let per_head = match numbers {
                PerHead::Distances { reach } => rng.tensor(&[heads, 2 * reach + 1]),
                _ => HostTensor::f32(&[heads], &per_head),
            };
            let state = HostTensor::u32(&[4], &[position, 0, 0, 0]);
            let inputs = vec![q, k_cache, v_cache, state, per_head];
            let scale = 1.0 / (head_dim as f32).sqrt();
            let attention = Attention { heads, kv_heads, head_dim, scale, window, softcap: None };
            cases.push(Case::new(AttentionPerHead { attention, numbers }, inputs, 1e-5));
        }
    }
    cases
}
