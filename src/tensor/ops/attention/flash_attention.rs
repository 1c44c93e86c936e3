//! Attention of queries over keys and values that are plain tensors, with an online softmax: no score is stored (FlashAttention,
//! Dao et al. 2022; the running maximum after Milakov, Gimelshein 2018).
//!
//! A workgroup takes 32 queries of the heads that share a key-value head (Ainslie et al. 2023) and goes over the keys and values in
//! workgroup memory. On software adapters, where barriers are expensive, each invocation takes a query alone.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::{grid_2d, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: q [batch, q_len, heads, head_dim], k and v [batch, kv_len, kv_heads, head_dim]. Output as q: softmax(q · kᵀ · scale) · v,
/// head by head. `heads` is a multiple of `kv_heads`, whose heads serve as many neighbouring ones of q.
#[derive(Clone)]
pub struct FlashAttention {
    /// Query i sees the keys up to i + kv_len − q_len: the last query sees all. One that sees none gives 0.
    pub causal: bool,
    /// Scores are multiplied with it, as a rule by 1 / √head_dim.
    pub scale: f32,
}

/// The most dimensions of a head: more sums don't fit an invocation's registers.
const MAX_HEAD_DIM: usize = 256;

/// Queries of a workgroup.
const ROWS: usize = 32;

/// Queries of a workgroup on software adapters.
const DIRECT_ROWS: usize = 32;

/// What the shapes say.
struct Sizes {
    batch: usize,
    q_len: usize,
    kv_len: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl FlashAttention {
    fn sizes(inputs: &[Desc]) -> Result<Sizes> {
        let [q, k, v] = [0, 1, 2].map(|i| inputs[i].shape);
        let (&[batch, q_len, heads, head_dim], &[kv_batch, kv_len, kv_heads, kv_dim]) = (q.dims(), k.dims()) else {
            bail!(ShapeMismatch, "attention: q and k have four dimensions, not those of {q} and {k}");
        };
        if k != v || (kv_batch, kv_dim) != (batch, head_dim) {
            bail!(ShapeMismatch, "attention: q {q}, k {k} and v {v} don't fit each other");
        }
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            bail!(ShapeMismatch, "attention: {heads} heads are not a multiple of the {kv_heads} of k {k}");
        }
        if head_dim == 0 || head_dim > MAX_HEAD_DIM {
            bail!(ShapeMismatch, "attention: heads have 1 to {MAX_HEAD_DIM} dimensions, not {head_dim}");
        }
        Ok(Sizes { batch, q_len, kv_len, heads, kv_heads, head_dim })
    }

    /// The keys that query `i` sees.
    fn seen(&self, i: usize, sizes: &Sizes) -> usize {
        if self.causal { (i + 1 + sizes.kv_len).saturating_sub(sizes.q_len) } else { sizes.kv_len }
    }
}

impl Op for FlashAttention {
    on_cpu!();

    fn name(&self) -> &'static str {
        "flash_attention"
    }

    fn title(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.title(), inputs, &[Some(DType::F32); 3])?;
        Self::sizes(inputs)?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let Sizes { batch, q_len, kv_len, heads, kv_heads, head_dim } = Self::sizes(inputs)?;
        let mut defines = vec![("HEAD_DIM", Define::U32(head_dim as u32))];
        if self.causal {
            defines.push(("CAUSAL", Define::Flag));
        }
        if head_dim.is_multiple_of(4) {
            defines.push(("FOUR", Define::Flag));
        }
        let (template, workgroups) = if capabilities.software {
            (crate::shader!("flash_attention_direct.wgsl"), (batch * heads * q_len).div_ceil(DIRECT_ROWS))
        } else {
            for (name, dims) in [("DIMS_64", 64), ("DIMS_128", 128), ("DIMS_192", 192)] {
                if head_dim > dims {
                    defines.push((name, Define::Flag));
                }
            }
            if subgroup_lanes(capabilities, 8) == Some(8) {
                defines.push(("SUBGROUPS", Define::Flag));
            }
            let tiles = (q_len * heads / kv_heads).div_ceil(ROWS);
            (crate::shader!("flash_attention.wgsl"), batch * kv_heads * tiles)
        };
        let mut params = [batch, q_len, kv_len, heads, kv_heads].map(|size| size as u32).to_vec();
        params.push(self.scale.to_bits());
        Ok(Kernel {
            template,
            modules: &[("flash_attention_tensors", crate::shader!("flash_attention_tensors.wgsl"))],
            defines,
            params,
            grid: grid_2d(workgroups, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for FlashAttention {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let descs: Vec<Desc> = inputs.iter().map(HostTensor::desc).collect();
        let sizes = Self::sizes(&descs)?;
        let Sizes { q_len, kv_len, heads, kv_heads, head_dim, .. } = sizes;
        let (q, k, v) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let mut out = Vec::with_capacity(q.len());
        for (i, query) in q.chunks_exact(head_dim).enumerate() {
            let (first, token, head) = (i / (q_len * heads) * kv_len, i / heads % q_len, i % heads);
            let vector = |j: usize| ((first + j) * kv_heads + head / (heads / kv_heads)) * head_dim;
            let seen = self.seen(token, &sizes);
            let score = |j: usize| {
                let products = query.iter().zip(&k[vector(j)..]).map(|(q, k)| f64::from(*q) * f64::from(*k));
                products.sum::<f64>() * f64::from(self.scale)
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sums = vec![0f64; head_dim];
            for (j, weight) in weights.iter().enumerate() {
                for (sum, value) in sums.iter_mut().zip(&v[vector(j)..]) {
                    *sum += weight / total * f64::from(*value);
                }
            }
            out.extend(sums.iter().map(|sum| *sum as f32));
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(95);
    // batch, q_len, kv_len, heads, kv_heads, head_dim
    let shapes = [
        (1, 1, 1, 1, 1, 1),
        (2, 3, 5, 2, 2, 7),
        (1, 37, 37, 4, 4, 16),
        (2, 67, 131, 6, 2, 64),
        // Fewer keys than queries: with `causal`, the first see none, and whole tiles of them.
        (1, 71, 9, 3, 1, 33),
        (3, 1, 200, 8, 2, 64),
        (1, 33, 65, 2, 1, 80),
        (1, 17, 129, 2, 2, 128),
        (1, 40, 40, 1, 1, 163),
        (1, 11, 70, 3, 3, 255),
        (1, 35, 100, 2, 1, 256),
        (5, 1, 1, 7, 1, 96),
        (1, 300, 311, 2, 1, 32),
    ];
    let mut cases = Vec::new();
    for (batch, q_len, kv_len, heads, kv_heads, head_dim) in shapes {
        for causal in [false, true] {
            // Large enough that the softmax is far from flat.
            let mut q = rng.tensor(&[batch, q_len, heads, head_dim]);
            let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
            q.set_f32(&sharp);
            let [k, v] = [(); 2].map(|()| rng.tensor(&[batch, kv_len, kv_heads, head_dim]));
            let op = FlashAttention { causal, scale: 1.0 / (head_dim as f32).sqrt() };
            cases.push(Case::new(op, vec![q, k, v], 1e-5));
        }
    }
    // A query that is not a number spoils its own output alone, and scores may be far from 0 or fall with the keys.
    let mut q = rng.tensor(&[1, 9, 2, 20]).to_f32().unwrap_or_default();
    q[67] = f32::NAN;
    let q = HostTensor::f32(&[1, 9, 2, 20], &q);
    let falling: Vec<f32> = (0..70 * 2 * 20).map(|i| if i % 20 == 3 { i as f32 * -0.01 } else { 0.5 }).collect();
    let v = rng.tensor(&[1, 70, 2, 20]);
    cases.push(Case::new(
        FlashAttention { causal: true, scale: 1.0 },
        vec![q, HostTensor::f32(&[1, 70, 2, 20], &falling), v],
        1e-4,
    ));
    cases
}
