//! What stands between the product that gives queries, keys and values and the attention, in one pass over the tokens: the
//! bias, the rotary position embedding of q and k (Su et al. 2021, RoFormer), and the new rows of the KV cache.

use super::placement::Placement;
use super::{KvAppend, Rope};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: qkv [tokens, (heads + 2 · kv_heads) · head_dim] (a token's q, then k, then v), frequencies [n] with
/// 2n ≤ head_dim (the rest of a head is left alone), state [4] u32 (state[0] is the position of the first token), k_cache and
/// v_cache [capacity, kv_heads · head_dim] (changed), and, if there is one, a bias of qkv's columns. Output: q
/// [tokens, heads · head_dim]. Tokens past the capacity are not written; the caller checks that there is room. Nor are those of
/// a sequence that has stopped. With a state [tokens, 4] each token is of a sequence of its own, and caches are
/// [sequences, capacity, kv_heads · head_dim] (`placement.rs`).
#[derive(Clone, Copy, Debug)]
pub struct RopeKvAppend {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Pairs are neighbours (2i, 2i + 1) rather than (i, i + n).
    pub interleaved: bool,
    /// What sine and cosine are multiplied with.
    pub scale: f32,
    pub bias: bool,
}

impl RopeKvAppend {
    fn columns(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

impl Op for RopeKvAppend {
    fn name(&self) -> &'static str {
        "rope_kv_append"
    }

    fn mutates(&self) -> &'static [usize] {
        &[3, 4]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let wanted = [f32, f32, Some(DType::U32), f32, f32, f32];
        expect("rope_kv_append", inputs, &wanted[..5 + usize::from(self.bias)])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let pairs = inputs[1].shape.elements();
        let (_, kv_dim) = Placement::of("rope_kv_append", inputs[2], tokens)?.cache("rope_kv_append", inputs[3])?;
        let fits = columns == self.columns()
            && kv_dim == self.kv_heads * self.head_dim
            && inputs[3].shape == inputs[4].shape
            && self.head_dim.is_multiple_of(2)
            && 2 * pairs <= self.head_dim;
        if !fits {
            bail!(
                ShapeMismatch,
                "rope_kv_append: qkv {}, caches {} and {}, {} and {} heads of {}, {pairs} frequencies for pairs of it",
                inputs[0].shape,
                inputs[3].shape,
                inputs[4].shape,
                self.heads,
                self.kv_heads,
                self.head_dim
            );
        }
        if self.bias && inputs[5].shape.dims() != [columns] {
            bail!(ShapeMismatch, "rope_kv_append: bias {} for {columns} columns", inputs[5].shape);
        }
        Ok(vec![Desc::f32(&[tokens, self.heads * self.head_dim])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("rope_kv_append", inputs[2], tokens)?;
        let (capacity, _) = placement.cache("rope_kv_append", inputs[3])?;
        let mut defines = placement.defines();
        if self.interleaved {
            defines.push(("INTERLEAVED", Define::Flag));
        }
        if self.bias {
            defines.push(("BIAS", Define::Flag));
        }
        let items = tokens * columns / 2;
        let numbers = [items, self.heads, self.kv_heads, self.head_dim, inputs[1].shape.elements(), capacity];
        Ok(Kernel {
            template: include_str!("rope_kv_append.wgsl"),
            modules: &[],
            defines,
            params: numbers.map(|number| number as u32).into_iter().chain([self.scale.to_bits()]).collect(),
            grid: grid_2d(items.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        if Placement::of("rope_kv_append", inputs[2].desc(), tokens)? == Placement::Sequences {
            return self.reference_of_sequences(inputs, tokens, columns);
        }
        let mut qkv = inputs[0].to_f32()?;
        if self.bias {
            let bias = inputs[5].to_f32()?;
            qkv.chunks_exact_mut(columns).for_each(|row| row.iter_mut().zip(&bias).for_each(|(x, b)| *x += b));
        }
        let (q_dim, kv_dim) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let part = |start: usize, length: usize| {
            let part: Vec<f32> = qkv.chunks_exact(columns).flat_map(|row| &row[start..][..length]).copied().collect();
            HostTensor::f32(&[tokens, length], &part)
        };
        let rope = Rope { head_dim: self.head_dim, interleaved: self.interleaved, scale: self.scale };
        let turned = |part: HostTensor| {
            let mut operands = [part, inputs[1].clone(), inputs[2].clone()];
            rope.reference(&mut operands)?;
            let [turned, ..] = operands;
            Ok::<_, crate::Error>(turned)
        };
        let (q, k, v) = (turned(part(0, q_dim))?, turned(part(q_dim, kv_dim))?, part(q_dim + kv_dim, kv_dim));
        if inputs[2].to_u32()?[2] == 0 {
            let mut operands = [k, v, inputs[3].clone(), inputs[4].clone(), inputs[2].clone()];
            KvAppend.reference(&mut operands)?;
            let [_, _, k_cache, v_cache, _] = operands;
            inputs[3] = k_cache;
            inputs[4] = v_cache;
        }
        Ok(vec![q])
    }
}

impl RopeKvAppend {
    /// Each token by itself, on its sequence's part of the caches.
    fn reference_of_sequences(
        &self,
        inputs: &mut [HostTensor],
        tokens: usize,
        columns: usize,
    ) -> Result<Vec<HostTensor>> {
        let (capacity, kv_dim) = Placement::Sequences.cache("rope_kv_append", inputs[3].desc())?;
        let (qkv, state) = (inputs[0].to_f32()?, inputs[2].to_u32()?);
        let mut q = Vec::new();
        for token in 0..tokens {
            let first = Placement::Sequences.first_row(&state, token, capacity) * kv_dim;
            let range = first..first + capacity * kv_dim;
            let cache = |input: usize| {
                Ok::<_, crate::Error>(HostTensor::f32(&[capacity, kv_dim], &inputs[input].to_f32()?[range.clone()]))
            };
            let mut of_token = vec![
                HostTensor::f32(&[1, columns], &qkv[token * columns..][..columns]),
                inputs[1].clone(),
                HostTensor::u32(&[4], &state[token * 4..][..4]),
                cache(3)?,
                cache(4)?,
            ];
            of_token.extend(inputs.get(5).cloned());
            q.extend(self.reference(&mut of_token)?.remove(0).to_f32()?);
            for input in [3, 4] {
                let mut all = inputs[input].to_f32()?;
                all[range.clone()].copy_from_slice(&of_token[input].to_f32()?);
                inputs[input].set_f32(&all);
            }
        }
        Ok(vec![HostTensor::f32(&[tokens, self.heads * self.head_dim], &q)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(27);
    let mut cases = Vec::new();
    // tokens, heads, kv_heads, head_dim, rotated, capacity, position
    for (tokens, heads, kv_heads, head_dim, rotated, capacity, position) in [
        (1, 1, 1, 2, 2, 1, 0),
        (5, 6, 2, 96, 48, 1009, 1000),
        (37, 8, 2, 64, 64, 40, 3),
        (3, 3, 3, 80, 80, 8, 5),
        (2, 4, 1, 256, 256, 33, 31),
    ] {
        for (interleaved, bias) in [(true, false), (false, true)] {
            let scale = if rotated < head_dim { 1.19 } else { 1.0 };
            let op = RopeKvAppend { heads, kv_heads, head_dim, interleaved, scale, bias };
            let frequencies: Vec<f32> =
                (0..rotated / 2).map(|i| 10000f32.powf(-2.0 * i as f32 / rotated as f32)).collect();
            let mut inputs = vec![
                rng.tensor(&[tokens, op.columns()]),
                HostTensor::f32(&[rotated / 2], &frequencies),
                HostTensor::u32(&[4], &[position, 0, 0, 0]),
                rng.tensor(&[capacity, kv_heads * head_dim]),
                rng.tensor(&[capacity, kv_heads * head_dim]),
            ];
            if bias {
                inputs.push(rng.tensor(&[op.columns()]));
            }
            cases.push(Case::new(op, inputs, 2e-6));
        }
    }
    // Four sequences, in another order than in the cache; the third has stopped and the last is past the end.
    for (interleaved, bias) in [(true, true), (false, false)] {
        let op = RopeKvAppend { heads: 6, kv_heads: 2, head_dim: 32, interleaved, scale: 1.0, bias };
        let state = [3, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1, 12, 7, 0, 4];
        let frequencies: Vec<f32> = (0..16).map(|i| 10000f32.powf(-(i as f32) / 16.0)).collect();
        let mut inputs = vec![
            rng.tensor(&[4, op.columns()]),
            HostTensor::f32(&[16], &frequencies),
            HostTensor::u32(&[4, 4], &state),
            rng.tensor(&[5, 12, 64]),
            rng.tensor(&[5, 12, 64]),
        ];
        if bias {
            inputs.push(rng.tensor(&[op.columns()]));
        }
        cases.push(Case::new(op, inputs, 2e-6));
    }
    cases
}
