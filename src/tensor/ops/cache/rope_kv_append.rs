//! The steps between the product for queries, keys and values and the attention, in one pass over the tokens: the bias, or the norms of
//! heads (QK-norm: Henry et al. 2020), the rotary position embedding of q and k (Su et al. 2021, RoFormer), and the new rows of the KV cache.

use rillm_cpu_kernels::rms_norm;

use super::cache_dtype::{cache_columns, case_dtype, random_cache, stored_tolerance};
use super::placement::Placement;
use super::qkv_parts::to_pair_order;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::cache::store;
use crate::tensor::cpu::fits;
use crate::tensor::cpu::rope::Angles;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::{KvAppend, NormHeads, QkvParts, Rope};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensor, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: qkv [tokens, (heads + 2 · kv_heads) · head_dim] (a token's q, then k, then v, as far as they are among the parts),
/// frequencies [n] with 2n ≤ head_dim (the rest of a head is left alone), state [4] u32 (state[0] is the position of the first
/// token), of the parts k_cache and v_cache [capacity, kv_heads · head_dim] (changed), and, if there is one, a bias for the columns
/// of all three parts, or with `norms` their weights [head_dim] of queries, then [head_dim] of keys, which may be left out if keys are not
/// among the parts. Output: q [tokens, heads · head_dim], if it is among the parts. Tokens past the capacity (the caller checks
/// that there is room) and tokens of a sequence that has stopped are not written. With a state [tokens, 4] each token is of a
/// sequence of its own, and caches are [sequences, capacity, kv_heads · head_dim] (`placement.rs`). In each head of q and k the
/// two numbers of a rope pair are neighbours.
#[derive(Clone, Copy, Debug)]
pub struct RopeKvAppend {
    /// The projections that the matrix holds.
    pub parts: QkvParts,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Pairs are neighbours (2i, 2i + 1) rather than (i, i + n).
    pub interleaved: bool,
    /// The factor of sine and cosine.
    pub scale: f32,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether heads are normed before rope; then there is no bias.
    pub norms: Option<HeadNorms>,
}

/// RMS norms (Zhang, Sennrich 2019) of each head by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadNorms {
    /// ε in the formula.
    pub epsilon: f32,
    /// Values are normed too, without weights (Gemma 4).
    pub values: bool,
}

/// The first input that is a cache.
const CACHES: usize = 3;

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;

impl RopeKvAppend {
    /// The range of a token's q, k and v that is in the input.
    fn range(&self) -> std::ops::Range<usize> {
        self.parts.range(self.heads * self.head_dim, self.kv_heads * self.head_dim)
    }

    fn all_columns(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

impl Op for RopeKvAppend {
    on_cpu!();

    fn name(&self) -> &'static str {
        "rope_kv_append"
    }

    fn mutates(&self) -> &'static [usize] {
        self.parts.mutates(CACHES)
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let mut wanted = vec![f32, f32, Some(DType::U32)];
        wanted.extend(self.parts.cache_dtypes(inputs.get(CACHES)));
        wanted.extend((self.bias || self.norms.is_some()).then_some(f32));
        expect("rope_kv_append", inputs, &wanted)?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let pairs = inputs[1].shape.elements();
        let caches = &inputs[CACHES..CACHES + self.parts.caches()];
        let kv_dim = |cache: &Desc| cache_columns(cache.dtype, self.kv_heads, self.head_dim);
        let placement = Placement::of("rope_kv_append", inputs[2], tokens)?;
        for cache in caches {
            placement.cache("rope_kv_append", *cache)?;
        }
        let fits = columns == self.range().len()
            && self.parts.is_a_run()
            && !(self.bias && self.norms.is_some())
            && caches.iter().all(|cache| cache.shape.dims().last() == Some(&kv_dim(cache)))
            && caches.iter().all(|cache| cache.shape == caches[0].shape)
            && self.head_dim.is_multiple_of(2)
            && 2 * pairs <= self.head_dim;
        if !fits {
            bail!(
                ShapeMismatch,
                "rope_kv_append: qkv {}, caches {:?}, {} and {} heads of {}, {pairs} frequencies for pairs of it",
                inputs[0].shape,
                caches.iter().map(|cache| cache.shape).collect::<Vec<_>>(),
                self.heads,
                self.kv_heads,
                self.head_dim
            );
        }
        if let Some(vector) = inputs.get(CACHES + self.parts.caches()) {
            let wanted = match self.norms {
                Some(_) if self.parts.k => vec![2 * self.head_dim],
                Some(_) => vec![2 * self.head_dim, self.head_dim],
                None => vec![self.all_columns()],
            };
            if !wanted.contains(&vector.shape.elements()) || vector.shape.dims().len() != 1 {
                let what = if self.norms.is_some() { "norms" } else { "bias" };
                bail!(ShapeMismatch, "rope_kv_append: {what} {}, wanted {wanted:?}", vector.shape);
            }
        }
        Ok(self.parts.outputs(tokens, self.heads * self.head_dim))
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("rope_kv_append", inputs[2], tokens)?;
        let capacity = match self.parts.caches() {
            0 => 0,
            _ => placement.cache("rope_kv_append", inputs[CACHES])?.0,
        };
        let vector = (CACHES + self.parts.caches()) as u32;
        let mut defines = self.parts.defines(CACHES as u32, u32::from(self.bias || self.norms.is_some()));
        defines.extend(placement.defines());
        defines.extend(self.parts.cache_defines(inputs.get(CACHES)));
        if self.interleaved {
            defines.push(("INTERLEAVED", Define::Flag));
        }
        if self.bias {
            defines.push(("BIAS", Define::Flag));
            defines.push(("BIAS_BINDING", Define::U32(vector)));
        }
        let dtype = inputs.get(CACHES).filter(|_| self.parts.caches() > 0).map_or(DType::F32, |cache| cache.dtype);
        let heads = columns / self.head_dim;
        let mut items = tokens * cache_columns(dtype, heads, self.head_dim) / 2;
        let mut workgroups = items.div_ceil(WORKGROUP as usize);
        if let Some(norms) = self.norms {
            // A workgroup for each head.
            (items, workgroups) = (tokens * heads, tokens * heads);
            defines.extend(Team::of_workgroup(WORKGROUP, capabilities).defines());
            defines.extend([("HEAD_NORMS", Define::Flag), ("NORMS_BINDING", Define::U32(vector))]);
            defines.extend(norms.values.then_some(("NORMED_VALUES", Define::Flag)));
        }
        let pairs = inputs[1].shape.elements();
        let first = self.range().start;
        let numbers = [items, self.heads, self.kv_heads, self.head_dim, pairs, capacity, first, columns];
        Ok(Kernel {
            template: crate::shader!("rope_kv_append.wgsl"),
            modules: &[],
            defines,
            params: numbers
                .map(|number| number as u32)
                .into_iter()
                .chain([self.scale, self.norms.map_or(0.0, |norms| norms.epsilon)].map(f32::to_bits))
                .collect(),
            grid: grid_2d(workgroups, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RopeKvAppend {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        if Placement::of("rope_kv_append", inputs[2].desc(), tokens)? == Placement::Sequences {
            return self.reference_of_sequences(inputs, tokens, columns);
        }
        let caches = self.parts.caches();
        if self.norms.is_some() {
            inputs[0] = self.normed(inputs)?;
        }
        // As if all three parts were there.
        let mut qkv = Vec::new();
        for row in inputs[0].to_f32()?.chunks_exact(columns) {
            let start = qkv.len();
            qkv.resize(start + self.all_columns(), 0.0);
            qkv[start..][self.range()].copy_from_slice(row);
        }
        let columns = self.all_columns();
        if self.bias {
            let bias = inputs[CACHES + caches].to_f32()?;
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
            let [mut turned, ..] = operands;
            let mut values = turned.to_f32()?;
            to_pair_order(&mut values, self.head_dim, inputs[1].shape.elements(), self.interleaved);
            turned.set_f32(&values);
            Ok::<_, crate::Error>(turned)
        };
        let (q, k, v) = (turned(part(0, q_dim))?, turned(part(q_dim, kv_dim))?, part(q_dim + kv_dim, kv_dim));
        if caches > 0 && inputs[2].to_u32()?[2] == 0 {
            // With one cache, the other part is written to a copy that is dropped.
            let (k_at, v_at) = (CACHES, CACHES + caches - 1);
            let mut operands = [k, v, inputs[k_at].clone(), inputs[v_at].clone(), inputs[2].clone()];
            KvAppend { head_dim: self.head_dim }.reference(&mut operands)?;
            let [_, _, k_cache, v_cache, _] = operands;
            if self.parts.k {
                inputs[k_at] = k_cache;
            }
            if self.parts.v {
                inputs[v_at] = v_cache;
            }
        }
        Ok(if self.parts.q { vec![q] } else { vec![] })
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (tokens, columns) = tensors.input(0)?.desc.shape.matrix()?;
        let placement = Placement::of(self.name(), tensors.input(2)?.desc, tokens)?;
        let caches = CACHES..CACHES + self.parts.caches();
        let (q_dim, kv_dim) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let turned = q_dim + kv_dim;
        let (before, from_caches) = tensors.inputs.split_at_mut(CACHES);
        let (of_caches, after) = from_caches.split_at_mut(caches.len());
        let capacity = of_caches.first().map_or(Ok(0), |cache| Ok(placement.cache(self.name(), cache.desc)?.0))?;
        let (qkv, frequencies, state) = (before[0].f32s()?, before[1].f32s()?, before[2].u32s()?);
        let after: &[f32] = after.first().map_or(Ok(&[][..]), CpuTensor::f32s)?;
        let mut row = vec![0.0; self.all_columns()];
        for (token, from) in qkv.chunks_exact(columns).enumerate() {
            // As if all three parts were there.
            row.fill(0.0);
            row[self.range()].copy_from_slice(from);
            if self.bias {
                row.iter_mut().zip(after).for_each(|(x, bias)| *x += bias);
            }
            if let Some(norms) = self.norms {
                self.norm_row(norms, after, &mut row)?;
            }
            let position = placement.position(state, token);
            let angles = Angles::new(position, frequencies, self.scale);
            row[..turned].chunks_exact_mut(self.head_dim).for_each(|head| angles.turn(head, self.interleaved));
            to_pair_order(&mut row[..turned], self.head_dim, frequencies.len(), self.interleaved);
            if position < capacity && !placement.has_stopped(state, token) {
                let at = placement.first_row(state, token, capacity) + position;
                let firsts = [(self.parts.k, q_dim), (self.parts.v, turned)].into_iter().filter(|part| part.0);
                for (cache, (_, first)) in of_caches.iter_mut().zip(firsts) {
                    store(cache, at, self.head_dim, &row[first..first + kv_dim])?;
                }
            }
            if self.parts.q {
                tensors.outputs[0].f32s_mut()?[token * q_dim..][..q_dim].copy_from_slice(&row[..q_dim]);
            }
        }
        Ok(())
    }
}

impl RopeKvAppend {
    /// Norms the heads of a token, on the CPU's device.
    fn norm_row(&self, norms: HeadNorms, weights: &[f32], row: &mut [f32]) -> Result<()> {
        let ones = vec![1.0; self.head_dim];
        let (of_queries, of_keys) = weights.split_at(self.head_dim.min(weights.len()));
        let of_keys = if of_keys.len() < self.head_dim { &ones } else { &of_keys[..self.head_dim] };
        for (index, head) in row.chunks_exact_mut(self.head_dim).enumerate() {
            let weight = match index {
                index if index < self.heads => of_queries,
                index if index < self.heads + self.kv_heads => of_keys,
                _ if norms.values => &ones,
                _ => break,
            };
            let x = head.to_vec();
            fits(rms_norm(&x, weight, norms.epsilon, head))?;
        }
        Ok(())
    }

    /// The input with normed heads.
    fn normed(&self, inputs: &[HostTensor]) -> Result<HostTensor> {
        let Some(norms) = self.norms else { return Ok(inputs[0].clone()) };
        let mut weights = inputs[CACHES + self.parts.caches()].to_f32()?;
        weights.resize(2 * self.head_dim, 1.0);
        let QkvParts { q, k, v } = self.parts;
        let op = NormHeads {
            epsilon: norms.epsilon,
            queries: if q { self.heads } else { 0 },
            keys: if k { self.kv_heads } else { 0 },
            values: if v && norms.values { self.kv_heads } else { 0 },
            query_length: self.head_dim,
            key_length: self.head_dim,
        };
        let mut operands = [inputs[0].clone(), HostTensor::f32(&[weights.len()], &weights)];
        op.reference(&mut operands)?;
        let [normed, _] = operands;
        Ok(normed)
    }

    /// Each token by itself, on its sequence's part of the caches.
    fn reference_of_sequences(
        &self,
        inputs: &mut [HostTensor],
        tokens: usize,
        columns: usize,
    ) -> Result<Vec<HostTensor>> {
        let caches = CACHES..CACHES + self.parts.caches();
        let (capacity, kv_dim) = if caches.is_empty() {
            (0, 0)
        } else {
            Placement::Sequences.cache("rope_kv_append", inputs[CACHES].desc())?
        };
        let (qkv, state) = (inputs[0].to_f32()?, inputs[2].to_u32()?);
        let mut q = Vec::new();
        for token in 0..tokens {
            let first = Placement::Sequences.first_row(&state, token, capacity) * kv_dim;
            let range = first..first + capacity * kv_dim;
            let cache = |input: usize| {
                let mut part = HostTensor::zeros(&Desc { shape: [capacity, kv_dim].into(), ..inputs[input].desc() });
                part.set_f32(&inputs[input].to_f32()?[range.clone()]);
                Ok::<_, crate::Error>(part)
            };
            let mut of_token = vec![
                HostTensor::f32(&[1, columns], &qkv[token * columns..][..columns]),
                inputs[1].clone(),
                HostTensor::u32(&[4], &state[token * 4..][..4]),
            ];
            for input in caches.clone() {
                of_token.push(cache(input)?);
            }
            of_token.extend(inputs.get(caches.end).cloned());
            for output in self.reference(&mut of_token)? {
                q.extend(output.to_f32()?);
            }
            for input in caches.clone() {
                let mut all = inputs[input].to_f32()?;
                all[range.clone()].copy_from_slice(&of_token[input].to_f32()?);
                inputs[input].set_f32(&all);
            }
        }
        let q = || HostTensor::f32(&[tokens, self.heads * self.head_dim], &q);
        Ok(if self.parts.q { vec![q()] } else { vec![] })
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
        (2, 128, 8, 64, 64, 9, 7),
        (3, 13, 1, 128, 128, 9, 2),
    ] {
        for (interleaved, bias, normed) in [(true, false, false), (false, true, false), (false, false, true)] {
            // All parts in most cases, and each run of them in one.
            let parts = QkvParts::RUNS[if cases.len() % 2 == 0 { 0 } else { (cases.len() / 2 + 1) % 6 }];
            let scale = if rotated < head_dim { 1.19 } else { 1.0 };
            let norms = normed.then_some(HeadNorms { epsilon: 1e-6, values: tokens % 2 == 1 });
            let op = RopeKvAppend { parts, heads, kv_heads, head_dim, interleaved, scale, bias, norms };
            let frequencies: Vec<f32> =
                (0..rotated / 2).map(|i| 10000f32.powf(-2.0 * i as f32 / rotated as f32)).collect();
            let mut inputs = vec![
                rng.tensor(&[tokens, op.range().len()]),
                HostTensor::f32(&[rotated / 2], &frequencies),
                HostTensor::u32(&[4], &[position, 0, 0, 0]),
            ];
            let dtype = case_dtype(cases.len());
            let caches = 0..parts.caches();
            inputs.extend(caches.map(|_| random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim)));
            if bias {
                inputs.push(rng.tensor(&[op.all_columns()]));
            }
            if normed {
                let of_keys = parts.k || tokens % 2 == 0;
                inputs.push(rng.tensor(&[if of_keys { 2 * head_dim } else { head_dim }]));
            }
            cases.push(Case::new(op, inputs, stored_tolerance(dtype, 2e-6)));
        }
    }
    // Four sequences, in another order than in the cache; the third has stopped and the last is past the end.
    for (index, parts) in [0, 0, 1, 4, 5].map(|run| QkvParts::RUNS[run]).into_iter().enumerate() {
        let (interleaved, bias) = (index % 2 == 0, index % 2 == 0);
        let norms = (index % 2 == 1).then_some(HeadNorms { epsilon: 1e-5, values: index == 1 });
        let head_dim = if index < 3 { 32 } else { 48 };
        let op = RopeKvAppend { parts, heads: 6, kv_heads: 2, head_dim, interleaved, scale: 1.0, bias, norms };
        let state = [3, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1, 12, 7, 0, 4];
        let frequencies: Vec<f32> = (0..16).map(|i| 10000f32.powf(-(i as f32) / 16.0)).collect();
        let mut inputs = vec![
            rng.tensor(&[4, op.range().len()]),
            HostTensor::f32(&[16], &frequencies),
            HostTensor::u32(&[4, 4], &state),
        ];
        let dtype = case_dtype(index + 1);
        inputs.extend((0..parts.caches()).map(|_| random_cache(&mut rng, dtype, &[5, 12], 2, head_dim)));
        if bias {
            inputs.push(rng.tensor(&[op.all_columns()]));
        }
        inputs.extend(norms.map(|_| rng.tensor(&[2 * head_dim])));
        cases.push(Case::new(op, inputs, stored_tolerance(dtype, 2e-6)));
    }
    cases
}
