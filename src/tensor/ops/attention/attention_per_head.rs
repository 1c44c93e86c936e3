//! Attention with one number more for each head: a score that takes its part of the softmax and has no value (attention sinks, Xiao et al.
//! 2023, as gpt-oss learns them), or the slope by which positions further back count less (ALiBi, Press et al. 2021). The rest is
//! `attention`.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::ops::Attention;
use crate::tensor::ops::cache::cache_dtype::{case_dtype, random_cache};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// What a head's number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerHead {
    /// The score of a position without a value.
    Sink,
    /// What each step back takes from a score.
    Slope,
}

/// Inputs and output as of `Attention`, and after the state a number for each head, [heads].
#[derive(Clone, Copy, Debug)]
pub struct AttentionPerHead {
    /// The rest.
    pub attention: Attention,
    /// What the numbers are.
    pub numbers: PerHead,
}

impl Op for AttentionPerHead {
    fn name(&self) -> &'static str {
        "attention_per_head"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let [of_attention @ .., numbers] = inputs else {
            bail!(ShapeMismatch, "attention_per_head takes 5 inputs, not 0");
        };
        if numbers.dtype != DType::F32 || numbers.shape.dims() != [self.attention.heads] {
            bail!(
                ShapeMismatch,
                "attention_per_head: numbers {:?} {}, wanted {} of F32",
                numbers.dtype,
                numbers.shape,
                self.attention.heads
            );
        }
        self.attention.infer(of_attention)
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let mut kernel = self.attention.kernel(inputs, outputs, capabilities)?;
        kernel.defines.push(("PER_HEAD", Define::Flag));
        kernel.defines.push(match self.numbers {
            PerHead::Sink => ("SINKS", Define::Flag),
            PerHead::Slope => ("SLOPES", Define::Flag),
        });
        Ok(kernel)
    }
}

impl Reference for AttentionPerHead {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let first = inputs[3].to_u32()?[0] as usize;
        let numbers: Vec<f64> = inputs[4].to_f32()?.into_iter().map(f64::from).collect();
        let (sinks, slopes) = match self.numbers {
            PerHead::Sink => (Some(&numbers), None),
            PerHead::Slope => (None, Some(&numbers)),
        };
        let seen = |token: usize| {
            let end = first + token + 1;
            self.attention.window.map_or(0, |window| end.saturating_sub(window))..end
        };
        let added = |token: usize, head: usize, p: usize| {
            slopes.map_or(0.0, |slopes| -slopes[head] * (first + token - p) as f64)
        };
        self.attention.reference_with(inputs, seen, added, |head| sinks.map(|sinks| sinks[head]))
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
        for numbers in [PerHead::Sink, PerHead::Slope] {
            let mut q = rng.tensor(&[tokens, heads * head_dim]);
            let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
            q.set_f32(&sharp);
            let dtype = case_dtype(cases.len() / 2);
            let [k_cache, v_cache] = [(); 2].map(|()| random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim));
            // Sinks below and above all scores; slopes from 1 down.
            let of_head = |head: usize| match numbers {
                PerHead::Sink => [2.0, -30.0, 0.0, 12.0][head % 4],
                PerHead::Slope => 0.5f32.powi(head as i32),
            };
            let per_head: Vec<f32> = (0..heads).map(of_head).collect();
            let state = HostTensor::u32(&[4], &[position, 0, 0, 0]);
            let inputs = vec![q, k_cache, v_cache, state, HostTensor::f32(&[heads], &per_head)];
            let scale = 1.0 / (head_dim as f32).sqrt();
            let attention = Attention { heads, kv_heads, head_dim, scale, window, softcap: None };
            cases.push(Case::new(AttentionPerHead { attention, numbers }, inputs, 1e-5));
        }
    }
    cases
}
