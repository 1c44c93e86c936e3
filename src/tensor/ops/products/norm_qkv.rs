//! From the residual stream to queries, keys and values of one token, in one dispatch: a norm, the three projections, biases,
//! rotary positions, and the append to the KV cache. If the projections have different types, there is one dispatch for each type.

use super::low_rank;
use super::mat_vec::takes_case;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::cache::store;
use crate::tensor::cpu::linear::linear;
use crate::tensor::cpu::rope::Angles;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::cache::cache_dtype::{
    cache_columns, cached, case_dtype, random_cache, set_cached, stored_tolerance,
};
use crate::tensor::ops::cache::qkv_parts::to_pair_order;
use crate::tensor::ops::{QkvParts, RowNorm};
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::soa::{from_soa, to_soa};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: x [1, columns] in SoA (`tensor/soa.rs`), vectors [columns + pairs + rows, or without biases columns + pairs]
/// (the norm's weight in SoA, of a layer norm also its bias, then rope's frequency of each pair, then the biases of all three parts;
/// padded with zeros to a multiple of 4), weight [rows, columns] (rows of all queries, then of all keys, then of all values, as far
/// as they are among the parts), state [4] u32 (state[0] is the token's position; state[2] is not 0 if the sequence has stopped),
/// and, of those among the parts, k_cache and v_cache [capacity, kv_dim] (changed at that position, if it is below the capacity and
/// the sequence has not stopped), and with `low_rank` h and the words of B (`low_rank.rs`). Output: q [1, q_dim], if it is among the parts. In
/// each head of q and k the two numbers of a rope pair are neighbours.
#[derive(Clone, Copy, Debug)]
pub struct NormQkv {
    /// The projections that the matrix holds.
    pub parts: QkvParts,
    /// The norm of x before the products.
    pub norm: RowNorm,
    /// Rows of all queries: heads · head_dim.
    pub q_dim: usize,
    /// Rows of all keys, and of all values: kv_heads · head_dim.
    pub kv_dim: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Pairs of a head that rope rotates.
    pub pairs: usize,
    /// Pairs are neighbours (2i, 2i + 1), rather than (i, i + pairs).
    pub interleaved: bool,
    /// The factor of rope's sine and cosine.
    pub scale: f32,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether an adapter adds to the product.
    pub low_rank: bool,
}

/// The first input that is a cache.
const CACHES: usize = 4;

impl Op for NormQkv {
    on_cpu!();

    fn name(&self) -> &'static str {
        "norm_qkv"
    }

    fn mutates(&self) -> &'static [usize] {
        self.parts.mutates(CACHES)
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let of_adapter = [f32, Some(DType::U32)].into_iter().take(low_rank::inputs(self.low_rank));
        let caches = self.parts.cache_dtypes(inputs.get(CACHES));
        let wanted = [f32, f32, None, Some(DType::U32)].into_iter().chain(caches).chain(of_adapter);
        expect("norm_qkv", inputs, &wanted.collect::<Vec<_>>())?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let caches = &inputs[CACHES..self.of_adapter()];
        let wanted_rows = self.parts.range(self.q_dim, self.kv_dim).len();
        let biases = if self.bias { self.q_dim + 2 * self.kv_dim } else { 0 };
        let vectors = (self.norm.vectors() * columns + self.pairs + biases).next_multiple_of(4);
        let fits = inputs[0].shape.dims() == [1, columns]
            && columns.is_multiple_of(32)
            && inputs[1].shape.elements() == vectors
            && self.parts.is_a_run()
            && rows == wanted_rows
            && caches.iter().all(|cache| {
                let columns = cache_columns(cache.dtype, self.kv_dim / self.head_dim, self.head_dim);
                cache.shape.matrix().is_ok_and(|(_, dim)| dim == columns)
            })
            && caches.iter().all(|cache| cache.shape == caches[0].shape)
            && self.head_dim.is_multiple_of(2)
            && 2 * self.pairs <= self.head_dim
            && self.q_dim.is_multiple_of(self.head_dim)
            && self.kv_dim.is_multiple_of(self.head_dim)
            && low_rank::fit(self.low_rank, inputs, self.of_adapter());
        if !fits {
            bail!(
                ShapeMismatch,
                "norm_qkv: x {}, vectors {}, weight {}, caches {:?}; wanted columns of a multiple of 32, {vectors} vector \
                 elements, {wanted_rows} rows and caches for {} columns",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                caches.iter().map(|cache| cache.shape).collect::<Vec<_>>(),
                self.kv_dim
            );
        }
        Ok(self.parts.outputs(1, self.q_dim))
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        self.kernel_of(Team::for_columns(columns, capabilities), inputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        let Ok((_, columns)) = inputs[2].shape.matrix() else { return vec![] };
        // If a workgroup computes a block, its teams read the activations again for each pair.
        if inputs.get(CACHES).is_some_and(|cache| cache.dtype == DType::Q8_0) {
            Team::candidates(capabilities)
        } else {
            Team::staged_candidates(columns, capabilities)
        }
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        self.kernel_of(Team::of(variant, columns, capabilities), inputs, capabilities)
    }
}

impl Reference for NormQkv {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[2].shape.matrix()?;
        let capacity = inputs.get(CACHES).map_or(0, |cache| cache.shape.dims()[0]);
        let (range, turned) = (self.parts.range(self.q_dim, self.kv_dim), self.q_dim + self.kv_dim);
        let x = from_soa(&inputs[0].to_f32()?);
        let vectors = inputs[1].to_f32()?;
        let (norm, more) = vectors.split_at(self.norm.vectors() * columns);
        let norm: Vec<Vec<f32>> = norm.chunks_exact(columns).map(from_soa).collect();
        let (frequencies, biases) = more.split_at(self.pairs);
        let state = inputs[3].to_u32()?;
        let position = state[0] as usize;
        // As if all three parts were there.
        let mut values = vec![0.0; self.q_dim + 2 * self.kv_dim];
        let mut products = self.norm.products(&x, &norm, &inputs[2].to_f32()?);
        low_rank::add_reference(self.low_rank, inputs, self.of_adapter(), 1.0 / self.norm.divisor(&x), &mut products)?;
        values[range].copy_from_slice(&products);
        for (value, bias) in values.iter_mut().zip(biases) {
            *value += f64::from(*bias);
        }
        for head in values[..turned].chunks_exact_mut(self.head_dim) {
            for (i, frequency) in frequencies.iter().enumerate() {
                let angle = f64::from(position as f32 * frequency);
                let (a, b) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, i + self.pairs) };
                let (first, second) = (head[a], head[b]);
                let (sin, cos) = (angle.sin() * f64::from(self.scale), angle.cos() * f64::from(self.scale));
                head[a] = first * cos - second * sin;
                head[b] = first * sin + second * cos;
            }
        }
        to_pair_order(&mut values[..turned], self.head_dim, self.pairs, self.interleaved);
        let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
        if position < capacity && state[2] == 0 {
            let first = [(self.parts.k, self.q_dim), (self.parts.v, turned)];
            for (cache, (_, first)) in first.into_iter().filter(|part| part.0).enumerate() {
                let cache = CACHES + cache;
                let mut elements = cached(&inputs[cache], self.head_dim)?;
                elements[position * self.kv_dim..][..self.kv_dim].copy_from_slice(&values[first..first + self.kv_dim]);
                set_cached(&mut inputs[cache], self.head_dim, &elements);
            }
        }
        let q = || HostTensor::f32(&[1, self.q_dim], &values[..self.q_dim]);
        Ok(if self.parts.q { vec![q()] } else { vec![] })
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (_, columns) = tensors.input(2)?.desc.shape.matrix()?;
        let turned = self.q_dim + self.kv_dim;
        let (norm, more) = tensors.input(1)?.f32s()?.split_at(self.norm.vectors() * columns);
        let (frequencies, biases) = more.split_at(self.pairs);
        let state = tensors.input(3)?.u32s()?;
        let (position, has_stopped) = (state[0] as usize, state[2] != 0);
        let mut products = linear(tensors.input(2)?, &self.norm.on_cpu(tensors.input(0)?.f32s()?, norm)?)?;
        low_rank::add_normed_on_cpu(self.low_rank, self.norm, &tensors, self.of_adapter(), &mut products)?;
        // As if all three parts were there.
        let mut values = vec![0.0; turned + self.kv_dim];
        values[self.parts.range(self.q_dim, self.kv_dim)].copy_from_slice(&products);
        values.iter_mut().zip(biases).for_each(|(value, bias)| *value += bias);
        let angles = Angles::new(position, frequencies, self.scale);
        for head in values[..turned].chunks_exact_mut(self.head_dim) {
            angles.turn(head, self.interleaved);
        }
        to_pair_order(&mut values[..turned], self.head_dim, self.pairs, self.interleaved);
        let firsts = [(self.parts.k, self.q_dim), (self.parts.v, turned)].into_iter().filter(|part| part.0);
        for (cache, (_, first)) in tensors.inputs[CACHES..].iter_mut().zip(firsts) {
            if position < cache.desc.shape.dims()[0] && !has_stopped {
                store(cache, position, self.head_dim, &values[first..first + self.kv_dim])?;
            }
        }
        if self.parts.q { tensors.output(0)?.write_f32s(&values[..self.q_dim]) } else { Ok(()) }
    }
}

impl NormQkv {
    /// The inputs before those of an adapter.
    fn of_adapter(&self) -> usize {
        CACHES + self.parts.caches()
    }

    fn kernel_of(&self, team: Team, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[2].shape.matrix()?;
        let capacity = inputs.get(CACHES).map_or(0, |cache| cache.shape.dims()[0]);
        let quantizes = self.parts.caches() > 0 && inputs[CACHES].dtype == DType::Q8_0;
        let team = if quantizes { team.of_blocks() } else { team };
        let workgroups = if quantizes {
            cache_columns(DType::Q8_0, rows / self.head_dim, self.head_dim) / BLOCK
        } else {
            (rows / 2).div_ceil(team.teams())
        };
        let mut defines = team.defines();
        defines.extend(self.norm.defines());
        defines.push(("TWO_ROWS", Define::Flag));
        // The weight has bindings of its own.
        defines.extend(low_rank::defines(self.low_rank, self.of_adapter() as u32 - 1));
        defines.extend(self.parts.defines(3, low_rank::inputs(self.low_rank) as u32));
        defines.extend(self.parts.cache_defines(inputs.get(CACHES)));
        if self.interleaved {
            defines.push(("INTERLEAVED", Define::Flag));
        }
        if self.bias {
            defines.push(("BIAS", Define::Flag));
        }
        if self.scale != 1.0 {
            defines.extend([("SCALED", Define::Flag), ("SCALE", Define::F32(self.scale))]);
        }
        Ok(Kernel {
            template: crate::shader!("norm_qkv.wgsl"),
            modules: &[],
            defines,
            params: vec![
                columns as u32,
                (columns / 32) as u32,
                self.norm.epsilon_bits(),
                self.q_dim as u32,
                self.kv_dim as u32,
                self.head_dim as u32,
                self.pairs as u32,
                capacity as u32,
                self.parts.range(self.q_dim, self.kv_dim).start as u32,
                rows as u32,
            ],
            grid: grid_2d(workgroups, capabilities.max_workgroups_per_dimension),
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(31);
    let mut cases = Vec::new();
    // heads, kv_heads, head_dim, pairs, columns, capacity, position
    let shapes = [
        (1, 1, 2, 1, 32, 1, 0),
        (4, 2, 16, 8, 96, 40, 7),
        (3, 1, 64, 30, 224, 33, 32),
        (5, 5, 80, 20, 160, 12, 3),
        (14, 2, 64, 32, 896, 9, 8),
        (11, 1, 256, 128, 64, 9, 8),
        (128, 8, 64, 32, 32, 9, 8),
        // Past the capacity: nothing is appended.
        (2, 1, 32, 16, 64, 5, 5),
    ];
    for format in in_cases() {
        for (index, (heads, kv_heads, head_dim, pairs, columns, capacity, position)) in shapes.into_iter().enumerate() {
            if !takes_case(format, index, shapes.len()) {
                continue;
            }
            let columns = usize::next_multiple_of(columns, format.block_size);
            let (q_dim, kv_dim) = (heads * head_dim, kv_heads * head_dim);
            // All parts in most cases, and each run of them in some.
            let parts = QkvParts::RUNS[if cases.len() % 2 == 0 { 0 } else { cases.len() / 2 % 6 }];
            let rows = parts.range(q_dim, kv_dim).len();
            let bias = index % 2 == 1;
            let norm = RowNorm::ALL[if cases.len() % 2 == 0 { 0 } else { cases.len() / 2 % 3 }];
            let mut vectors = to_soa(&rng.tensor(&[columns]).to_f32().unwrap_or_default());
            if norm.vectors() == 2 {
                vectors.extend(to_soa(&rng.tensor(&[columns]).to_f32().unwrap_or_default()));
            }
            vectors.extend((0..pairs).map(|i| 10000f32.powf(-(i as f32) / pairs as f32)));
            if bias {
                vectors.extend(rng.tensor(&[q_dim + 2 * kv_dim]).to_f32().unwrap_or_default());
            }
            vectors.resize(vectors.len().next_multiple_of(4), 0.0);
            let mut inputs = vec![
                rng.tensor(&[1, columns]),
                HostTensor::f32(&[vectors.len()], &vectors),
                rng.weight(format, rows, columns),
                // Every third has stopped.
                HostTensor::u32(&[4], &[position, 0, u32::from(cases.len() % 3 == 2), 0]),
            ];
            let dtype = case_dtype(cases.len() + index);
            let caches = 0..parts.caches();
            inputs.extend(caches.map(|_| random_cache(&mut rng, dtype, &[capacity], kv_heads, head_dim)));
            let low_rank = cases.len() % 4 == 1;
            inputs.extend(low_rank::random_inputs(low_rank, &mut rng, rows));
            let op = NormQkv {
                parts,
                norm,
                q_dim,
                kv_dim,
                head_dim,
                pairs,
                interleaved: (index + format.name.len()).is_multiple_of(2),
                scale: if 2 * pairs < head_dim { 1.19 } else { 1.0 },
                bias,
                low_rank,
            };
            cases.push(Case::new(op, inputs, stored_tolerance(dtype, 1e-5)));
        }
    }
    cases
}
