//! Causal attention of new tokens over the KV cache, with grouped query heads (Ainslie et al. 2023) and a softmax that is
//! computed in one pass over the positions (Milakov, Gimelshein 2018).

use std::ops::Range;

use rillm_cpu_kernels::Added;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::attention::{Stays, attention, causal};
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::cache::cache_dtype::{
    cache_columns, cache_defines, cache_dtype, cached, case_dtype, random_cache,
};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: q [tokens, heads · head_dim], k_cache and v_cache [capacity, kv_heads · head_dim], state [4] u32 (state[0] is
/// the position of the first token). The new tokens' keys and values are in the cache already. Output:
/// [tokens, heads · head_dim]. Query head h uses key-value head h · kv_heads / heads.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Scores are q·k · scale; usually 1 / √head_dim.
    pub scale: f32,
    /// The number of positions that a token sees, its own included and last (sliding window); `None`: all.
    pub window: Option<usize>,
    /// Scores become softcap · tanh(score / softcap) (Gemma 2).
    pub softcap: Option<f32>,
}

/// A window and a soft cap for the kernels of attention: defines, and the last two parameters.
pub(super) fn limits(window: Option<usize>, softcap: Option<f32>) -> (Vec<(&'static str, Define)>, [u32; 2]) {
    let mut defines = Vec::new();
    if window.is_some() {
        defines.push(("WINDOW", Define::Flag));
    }
    if softcap.is_some() {
        defines.push(("SOFTCAP", Define::Flag));
    }
    (defines, [window.unwrap_or(0) as u32, softcap.unwrap_or(0.0).to_bits()])
}

/// A score, on the CPU.
pub(super) fn capped(score: f64, softcap: Option<f32>) -> f64 {
    match softcap {
        Some(cap) => f64::from(cap) * (score / f64::from(cap)).tanh(),
        None => score,
    }
}

impl Op for Attention {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let cache = cache_dtype(inputs.get(1));
        expect("attention", inputs, &[Some(DType::F32), cache, cache, Some(DType::U32)])?;
        let (_, q_dim) = inputs[0].shape.matrix()?;
        let (_, kv_dim) = inputs[1].shape.matrix()?;
        let fits = q_dim == self.heads * self.head_dim
            && kv_dim == cache_columns(inputs[1].dtype, self.kv_heads, self.head_dim)
            && self.heads.is_multiple_of(self.kv_heads)
            && inputs[1].shape == inputs[2].shape;
        if !fits {
            bail!(
                ShapeMismatch,
                "attention: q {}, caches {} and {}, {} heads over {} of {}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                self.heads,
                self.kv_heads,
                self.head_dim
            );
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (capacity, _) = inputs[1].shape.matrix()?;
        // Lanes share a head's dimensions, so more lanes than dimensions would idle.
        let most = self.head_dim.next_power_of_two().min(32) as u32;
        let lanes = subgroup_lanes(capabilities, most);
        let workgroup = lanes.unwrap_or(32);
        let mut defines = lanes_defines(workgroup, lanes);
        defines.push(("DIMS_PER_LANE", Define::U32((self.head_dim as u32).div_ceil(workgroup))));
        defines.extend(cache_defines(inputs.get(1)));
        let (limits, [window, softcap]) = limits(self.window, self.softcap);
        defines.extend(limits);
        Ok(Kernel {
            template: crate::shader!("attention.wgsl"),
            modules: &[],
            defines,
            params: vec![
                (tokens * self.heads) as u32,
                self.heads as u32,
                self.kv_heads as u32,
                self.head_dim as u32,
                capacity as u32,
                self.scale.to_bits(),
                window,
                softcap,
            ],
            grid: grid_2d(tokens * self.heads, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Attention {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let first = inputs[3].to_u32()?[0] as usize;
        self.reference_over(inputs, |token| {
            let end = first + token + 1;
            self.window.map_or(0, |window| end.saturating_sub(window))..end
        })
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [q, k, v, state] = &tensors.inputs[..] else { bail!(Internal, "attention without four inputs") };
        let seen = causal(self.window, state.u32s()?[0] as usize, q.desc.shape.matrix()?.0);
        let out = attention(tensors.team, &self.on_cpu(Added::Nothing), None, q.f32s()?, [k, v], Stays::Kept, &seen)?;
        tensors.output(0)?.write_f32s(&out)
    }
}

impl Attention {
    /// For the CPU's device.
    pub(in crate::tensor::ops) fn on_cpu<'a>(&self, added: Added<'a>) -> rillm_cpu_kernels::Attention<'a> {
        let Self { heads, kv_heads, head_dim, scale, softcap, .. } = *self;
        rillm_cpu_kernels::Attention { heads, kv_heads, head_dim, scale, softcap, added }
    }

    /// On the CPU; each token attends to the positions that `seen` returns.
    pub(super) fn reference_over(
        &self,
        inputs: &[HostTensor],
        seen: impl Fn(usize) -> Range<usize>,
    ) -> Result<Vec<HostTensor>> {
        self.reference_with(inputs, seen, |_, _, _| 0.0, |_| None)
    }

    /// The same with more: what is added to the score of a token, a head and a position, and a head's score without a value.
    pub(super) fn reference_with(
        &self,
        inputs: &[HostTensor],
        seen: impl Fn(usize) -> Range<usize>,
        added: impl Fn(usize, usize, usize) -> f64,
        sink: impl Fn(usize) -> Option<f64>,
    ) -> Result<Vec<HostTensor>> {
        let [k, v] = [cached(&inputs[1], self.head_dim)?, cached(&inputs[2], self.head_dim)?];
        let q = inputs[0].to_f32()?;
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (hd, kv_dim) = (self.head_dim, self.kv_heads * self.head_dim);
        let mut out = vec![0f32; q.len()];
        for token in 0..tokens {
            for head in 0..self.heads {
                let at = (token * self.heads + head) * hd;
                let kv_at = head / (self.heads / self.kv_heads) * hd;
                let scores: Vec<f64> = seen(token)
                    .map(|p| {
                        let k = &k[p * kv_dim + kv_at..][..hd];
                        let dot: f64 = q[at..at + hd].iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                        capped(dot * f64::from(self.scale), self.softcap) + added(token, head, p)
                    })
                    .collect();
                let sink = sink(head);
                let largest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().copied().chain(sink).map(|s| (s - largest).exp()).sum();
                for d in 0..hd {
                    let values = seen(token).map(|p| f64::from(v[p * kv_dim + kv_at + d]));
                    let sum: f64 = scores.iter().zip(values).map(|(s, v)| (s - largest).exp() * v).sum();
                    out[at + d] = (sum / total) as f32;
                }
            }
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

/// Windows and soft caps of cases: none, both, a window longer than some contexts.
pub(super) const LIMITS: [(Option<usize>, Option<f32>); 3] = [(None, None), (Some(5), Some(1.5)), (Some(100), None)];

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(10);
    // tokens, heads, kv_heads, head_dim, capacity, position
    [
        (1, 1, 1, 2, 1, 0),
        (1, 4, 2, 16, 40, 0),
        (1, 6, 3, 64, 700, 521),
        (3, 5, 1, 80, 64, 7),
        (37, 8, 2, 64, 97, 13),
        (2, 4, 4, 128, 300, 255),
        (2, 2, 1, 256, 70, 67),
        (1, 16, 1, 96, 33, 31),
        (1, 128, 8, 64, 40, 20),
        (2, 11, 1, 160, 20, 13),
        (1, 45, 3, 224, 20, 18),
        (2, 2, 1, 512, 40, 33),
    ]
    .iter()
    .flat_map(|shape| LIMITS.map(|limits| (shape, limits)))
    .enumerate()
    .map(|(index, (&(tokens, heads, kv_heads, head_dim, capacity, position), (window, softcap)))| {
        let mut q = rng.tensor(&[tokens, heads * head_dim]);
        // Large enough that the softmax is far from flat.
        let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
        q.set_f32(&sharp);
        // Another dtype for the same window from one shape to the next.
        let dtype = case_dtype(index + index / LIMITS.len());
        let [k_cache, v_cache] = [(); 2].map(|()| random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim));
        let inputs = vec![q, k_cache, v_cache, HostTensor::u32(&[4], &[position, 0, 0, 0])];
        let scale = 1.0 / (head_dim as f32).sqrt();
        Case::new(Attention { heads, kv_heads, head_dim, scale, window, softcap }, inputs, 1e-5)
    })
    .collect()
}
