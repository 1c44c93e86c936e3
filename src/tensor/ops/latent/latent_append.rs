//! Norms the latents of new tokens, turns the rest of their keys, and writes both into the cache of latents. The rope part of the queries is
//! turned on the way (DeepSeek-AI 2024, "DeepSeek-V2": multi-head latent attention).

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::cache::store;
use crate::tensor::cpu::rope::Angles;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::ops::cache::cache_dtype::{
    cache_columns, cache_defines, cache_dtype, cached, case_dtype, random_cache, set_cached, stored_tolerance,
};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: kv [tokens, rank + turned] (a latent, then the key's part for rope), the weight of the latents' norm [rank], rope's frequencies
/// [turned / 2], q [tokens, heads · (plain + turned)], state [4] u32 (state[0] is the position of the first token), the cache [capacity,
/// `cache_columns` of a head of turned + rank] (changed) and queries [tokens, heads · (turned + rank)] (changed: the first `turned` numbers
/// of each head).
///
/// In the cache, and in queries, the turned part comes first, and the two numbers of a pair are neighbours, so that `kv_shift` can turn them
/// back. Tokens past the capacity are not written.
#[derive(Clone, Copy, Debug)]
pub struct LatentAppend {
    /// The length of a latent; even.
    pub rank: usize,
    /// Query heads.
    pub heads: usize,
    /// In kv and q pairs are neighbours (2i, 2i + 1), rather than (i, i + turned / 2).
    pub interleaved: bool,
    /// The factor of sine and cosine.
    pub scale: f32,
    /// ε of the norm.
    pub epsilon: f32,
}

impl LatentAppend {
    fn turned(&self, inputs: &[Desc]) -> usize {
        2 * inputs[2].shape.elements()
    }

    /// The two places of a pair in the input.
    fn places(&self, pair: usize, turned: usize) -> (usize, usize) {
        if self.interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + turned / 2) }
    }
}

impl Op for LatentAppend {
    on_cpu!();

    fn name(&self) -> &'static str {
        "latent_append"
    }

    fn mutates(&self) -> &'static [usize] {
        &[5, 6]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, cache) = (Some(DType::F32), cache_dtype(inputs.get(5)));
        expect("latent_append", inputs, &[f32, f32, f32, f32, Some(DType::U32), cache, f32])?;
        let turned = self.turned(inputs);
        let (tokens, kv_columns) = inputs[0].shape.matrix()?;
        let (q_tokens, q_columns) = inputs[3].shape.matrix()?;
        let (_, cache_width) = inputs[5].shape.matrix()?;
        let heads = self.heads.max(1);
        let fits = self.rank > 0
            && self.rank.is_multiple_of(2)
            && turned > 0
            && kv_columns == self.rank + turned
            && inputs[1].shape.elements() == self.rank
            && q_tokens == tokens
            && q_columns.is_multiple_of(heads)
            && q_columns / heads >= turned
            && inputs[4].shape.elements() >= 4
            && cache_width == cache_columns(inputs[5].dtype, 1, self.rank + turned)
            && inputs[6].shape.matrix()? == (tokens, self.heads * (self.rank + turned));
        if !fits {
            bail!(
                ShapeMismatch,
                "{self:?}: kv {}, norm {}, {turned} turned numbers, q {}, cache {} of {}, queries {}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[3].shape,
                inputs[5].shape,
                inputs[5].dtype.name(),
                inputs[6].shape
            );
        }
        fits_u32("latent_append", inputs[6].shape.dims())?;
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (_, q_columns) = inputs[3].shape.matrix()?;
        let (capacity, cache_width) = inputs[5].shape.matrix()?;
        let mut defines = vec![("KEYS", Define::Flag)];
        defines.extend(cache_defines(inputs.get(5)));
        if self.interleaved {
            defines.push(("INTERLEAVED", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("latent_append.wgsl"),
            modules: &[],
            defines,
            params: vec![
                tokens as u32,
                self.rank as u32,
                (self.turned(inputs) / 2) as u32,
                self.heads as u32,
                (q_columns / self.heads) as u32,
                (cache_width / 2) as u32,
                capacity as u32,
                self.scale.to_bits(),
                self.epsilon.to_bits(),
            ],
            grid: grid_2d(tokens, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for LatentAppend {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let descs: Vec<Desc> = inputs.iter().map(HostTensor::desc).collect();
        let (turned, rank) = (self.turned(&descs), self.rank);
        let (tokens, q_columns) = inputs[3].shape.matrix()?;
        let of_head = q_columns / self.heads;
        let (kv, norm, frequencies) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let (q, mut queries) = (inputs[3].to_f32()?, inputs[6].to_f32()?);
        let first = inputs[4].to_u32()?[0] as usize;
        let row = turned + rank;
        let mut values = cached(&inputs[5], row)?;
        let turn = |position: usize, x: &[f32]| -> Vec<f32> {
            let pair = |i: usize| {
                let angle = f64::from(position as f32 * frequencies[i]);
                let (sin, cos) = (angle.sin() * f64::from(self.scale), angle.cos() * f64::from(self.scale));
                let (a, b) = self.places(i, turned);
                let (x, y) = (f64::from(x[a]), f64::from(x[b]));
                [(x * cos - y * sin) as f32, (x * sin + y * cos) as f32]
            };
            (0..turned / 2).flat_map(pair).collect()
        };
        for token in 0..tokens {
            let position = first + token;
            let (latent, key) = kv[token * row..][..row].split_at(rank);
            for head in 0..self.heads {
                let rope = &q[token * q_columns + (head + 1) * of_head - turned..][..turned];
                queries[(token * self.heads + head) * row..][..turned].copy_from_slice(&turn(position, rope));
            }
            if (position + 1) * row > values.len() {
                continue;
            }
            let squares: f64 = latent.iter().map(|x| f64::from(*x).powi(2)).sum();
            let factor = 1.0 / (squares / rank as f64 + f64::from(self.epsilon)).sqrt();
            let normed = latent.iter().zip(&norm).map(|(x, w)| (f64::from(*x) * factor) as f32 * w);
            let written = turn(position, key).into_iter().chain(normed);
            for (value, new) in values[position * row..].iter_mut().zip(written) {
                *value = new;
            }
        }
        set_cached(&mut inputs[5], row, &values);
        inputs[6].set_f32(&queries);
        Ok(vec![])
    }

    /// Writes the new tokens' rows alone.
    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let descs: Vec<Desc> = tensors.inputs.iter().map(|tensor| tensor.desc).collect();
        let (turned, rank) = (self.turned(&descs), self.rank);
        let [kv, norm, frequencies, q, state, cache, queries] = &mut tensors.inputs[..] else {
            bail!(Internal, "latent_append without seven inputs")
        };
        let (_, q_columns) = q.desc.shape.matrix()?;
        let (capacity, _) = cache.desc.shape.matrix()?;
        let (of_head, row) = (q_columns / self.heads, turned + rank);
        let (kv, norm, frequencies, q) = (kv.f32s()?, norm.f32s()?, frequencies.f32s()?, q.f32s()?);
        let first = state.u32s()?.first().copied().unwrap_or(0) as usize;
        let queries = queries.f32s_mut()?;
        let mut new = vec![0.0; row];
        for (token, kv) in kv.chunks_exact(row).enumerate() {
            let position = first + token;
            let angles = Angles::new(position, frequencies, self.scale);
            // Pairs become neighbours.
            let turn = |from: &[f32], to: &mut [f32]| {
                for (pair, to) in to.chunks_exact_mut(2).enumerate() {
                    let (a, b) = self.places(pair, turned);
                    to.copy_from_slice(&[from[a], from[b]]);
                }
                angles.turn(to, true);
            };
            for head in 0..self.heads {
                let rope = &q[token * q_columns + (head + 1) * of_head - turned..][..turned];
                turn(rope, &mut queries[(token * self.heads + head) * row..][..turned]);
            }
            if position >= capacity {
                continue;
            }
            let (latent, key) = kv.split_at(rank);
            let (of_key, of_latent) = new.split_at_mut(turned);
            turn(key, of_key);
            let squares: f64 = latent.iter().map(|x| f64::from(*x).powi(2)).sum();
            let factor = 1.0 / (squares / rank as f64 + f64::from(self.epsilon)).sqrt();
            for ((new, x), weight) in of_latent.iter_mut().zip(latent).zip(norm) {
                *new = (f64::from(*x) * factor) as f32 * weight;
            }
            store(cache, position, row, &new)?;
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(612);
    let mut cases = Vec::new();
    // tokens, rank, turned, heads, plain, capacity, position
    for (tokens, rank, turned, heads, plain, capacity, position) in
        [(1, 2, 2, 1, 2, 1, 0), (3, 20, 8, 4, 12, 9, 5), (5, 36, 28, 3, 0, 7, 4), (2, 512, 64, 16, 128, 40, 31)]
    {
        for n in 0..3 {
            let (dtype, interleaved) = (case_dtype(n), (n + cases.len()) % 2 == 0);
            let scale = if turned == 8 { 1.19 } else { 1.0 };
            let op = LatentAppend { rank, heads, interleaved, scale, epsilon: 1e-6 };
            let frequency = |i: usize| 10000f32.powf(-2.0 * i as f32 / turned as f32);
            let frequencies: Vec<f32> = (0..turned / 2).map(frequency).collect();
            let inputs = vec![
                rng.tensor(&[tokens, rank + turned]),
                rng.tensor(&[rank]),
                HostTensor::f32(&[turned / 2], &frequencies),
                rng.tensor(&[tokens, heads * (plain + turned)]),
                HostTensor::u32(&[4], &[position, 0, 0, 0]),
                random_cache(&mut rng, dtype, &[capacity], 1, turned + rank),
                rng.tensor(&[tokens, heads * (turned + rank)]),
            ];
            cases.push(Case::new(op, inputs, stored_tolerance(dtype, 2e-6)));
        }
    }
    cases
}
