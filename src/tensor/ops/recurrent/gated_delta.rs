//! The recurrence of a gated delta net (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule"), token after token, and
//! the gated norm of what is read. Each head's state is a matrix S: a token with query q, key k and value v makes of it
//! S ← decay · S, S ← S + β (v − S k) kᵀ, and reads S q.
//!
//! A prompt goes token after token too. The paper's form of whole chunks, by the WY representation, computes about one and a half times as many
//! products, which pays where the units for matrices do them; WGSL has none. Here the rows of S are independent of each other, so that
//! a head goes to several workgroups, and its row to several lanes.

use rillm_cpu_kernels::{Activation, delta_step, gate, rms_norm};

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::{fits, zeros};
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::to_soa;
use crate::tensor::{Case, CpuTensor, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: qkv [tokens, 2 · key_heads · key_dim + heads · value_dim] of `short_convolution`; the gate, β and α of each head, of which each
/// is some columns of a matrix [tokens, columns] (α and β: before softplus and sigmoid); vectors [2 · heads + value_dim] (for each head a
/// factor and a bias, such that decay = exp(factor · softplus(α + bias)), and the weights of the norm); position [4] u32 or [tokens, 4],
/// and the state (changed), [len] or [sequences, len], both as `short_convolution` has them. Output: [tokens, heads · value_dim], what
/// each head reads; with `normed` its norm, times SiLU(gate).
#[derive(Clone, Copy, Debug)]
pub struct GatedDelta {
    /// Heads of queries, and of keys.
    pub key_heads: usize,
    /// Heads of values; a multiple of `key_heads`.
    pub heads: usize,
    /// The length of a query or key, a multiple of 4.
    pub key_dim: usize,
    /// The length of a value, a multiple of 4 of at most 256.
    pub value_dim: usize,
    /// Head h has the query and key h mod `key_heads`, instead of neighbouring heads sharing one.
    pub tiled: bool,
    /// The first columns of gate, β and α in their matrices.
    pub first: [usize; 3],
    /// The results are normed and gated. Without, several workgroups share a head, and gate and norm are not used.
    pub normed: bool,
    /// ε of the norm.
    pub epsilon: f32,
    /// Rows of the output are in SoA (`tensor/soa.rs`).
    pub soa: bool,
}

/// Elements of values that a workgroup takes if several share a head.
const ROWS: usize = 16;
/// The most lanes that share a row of the state.
const MOST_LANES: u32 = 8;
/// Tokens that are in workgroup memory at once.
const CHUNKS: [usize; 3] = [16, 8, 1];

/// How the lanes of a workgroup share the work.
struct Shares {
    lanes: usize,
    rows: usize,
    chunk: usize,
}

impl GatedDelta {
    /// The longest keys and values.
    pub const MAX_DIM: usize = 256;

    /// How many f32 the state of a sequence has. Parts of sequences can be bound alone.
    pub fn state_len(heads: usize, key_dim: usize, value_dim: usize) -> usize {
        (heads * key_dim * value_dim).next_multiple_of(64)
    }

    /// Whether this adapter runs long prompts faster if the norm is an op of its own.
    pub fn shares_heads(&self, capabilities: &Capabilities) -> bool {
        Self { normed: false, ..*self }.shares(CHUNKS[0], capabilities).is_some()
    }

    /// None where lanes can't share a row, or where a barrier costs more than that gains.
    fn shares(&self, tokens: usize, capabilities: &Capabilities) -> Option<Shares> {
        let most = subgroup_lanes(capabilities, MOST_LANES).filter(|_| !capabilities.software)? as usize;
        let rows = if self.normed { self.value_dim } else { ROWS };
        let words = self.key_dim / 4;
        let fits = |lanes: &usize| {
            *lanes <= most
                && words.is_multiple_of(*lanes)
                && rows * lanes <= capabilities.max_invocations_per_workgroup as usize
        };
        let lanes = [8, 4, 2].into_iter().find(fits)?;
        let wanted = CHUNKS.into_iter().filter(|chunk| if tokens == 1 { *chunk == 1 } else { *chunk / 2 < tokens });
        let chunk = wanted.into_iter().find(|chunk| {
            let bytes = 4 * (chunk * (2 * self.key_dim + rows + 2) + if self.normed { 2 * rows } else { 0 });
            bytes <= capabilities.max_workgroup_storage_size as usize && *chunk <= rows * lanes
        })?;
        Some(Shares { lanes, rows, chunk })
    }

    fn key_head(&self, head: usize) -> usize {
        if self.tiled { head % self.key_heads } else { head / (self.heads / self.key_heads) }
    }
}

impl Op for GatedDelta {
    on_cpu!();

    fn name(&self) -> &'static str {
        "gated_delta"
    }

    fn mutates(&self) -> &'static [usize] {
        &[6]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("gated_delta", inputs, &[f32, f32, f32, f32, f32, Some(DType::U32), f32])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("gated_delta", inputs[5], tokens)?;
        let len = placement.state_len("gated_delta", inputs[6])?;
        let values = self.heads * self.value_dim;
        let holds = |input: usize, wanted: usize| matches!(inputs[input].shape.dims(), [rows, all] if *rows == tokens && self.first[input - 1] + wanted <= *all);
        let fits = self.key_heads > 0
            && self.heads.is_multiple_of(self.key_heads)
            && [self.key_dim, self.value_dim]
                .iter()
                .all(|dim| dim.is_multiple_of(4) && (4..=Self::MAX_DIM).contains(dim))
            && columns == 2 * self.key_heads * self.key_dim + values
            && holds(1, values)
            && holds(2, self.heads)
            && holds(3, self.heads)
            && inputs[4].shape.elements() == 2 * self.heads + self.value_dim
            && len >= self.heads * self.key_dim * self.value_dim
            && len.is_multiple_of(4)
            && (!self.soa || values.is_multiple_of(BLOCK));
        if !fits {
            let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
            bail!(ShapeMismatch, "gated_delta: {shapes:?} for {self:?}");
        }
        Ok(vec![Desc::f32(&[tokens, values])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let placement = Placement::of("gated_delta", inputs[5], tokens)?;
        let len = placement.state_len("gated_delta", inputs[6])?;
        let runs = placement.runs(tokens);
        let shares = self.shares(runs.first().map_or(1, |run| run.len()), capabilities);
        let blocks = shares.as_ref().map_or(1, |shares| self.value_dim.div_ceil(shares.rows));
        let items = self.heads * blocks * runs.len();
        let mut defines = placement.defines();
        defines
            .extend([("WORDS", Define::U32(self.key_dim as u32 / 4)), ("VALUE", Define::U32(self.value_dim as u32))]);
        for (name, applies) in [("TILED", self.tiled), ("SOA", self.soa), ("NORMED", self.normed)] {
            defines.extend(applies.then_some((name, Define::Flag)));
        }
        let template = match &shares {
            Some(Shares { lanes, rows, chunk }) => {
                defines.extend(lanes_defines((rows * lanes) as u32, Some(*lanes as u32)));
                defines.extend([("ROWS", Define::U32(*rows as u32)), ("CHUNK", Define::U32(*chunk as u32))]);
                crate::shader!("gated_delta.wgsl")
            }
            None => crate::shader!("gated_delta_direct.wgsl"),
        };
        let mut params: Vec<usize> = vec![items, self.heads, self.key_heads, tokens];
        for (input, first) in inputs[1..4].iter().zip(self.first) {
            params.extend([input.shape.matrix()?.1, first]);
        }
        params.push(len);
        Ok(Kernel {
            template,
            modules: &[],
            defines,
            params: params.into_iter().map(|number| number as u32).chain([self.epsilon.to_bits()]).collect(),
            grid: grid_2d(items, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for GatedDelta {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("gated_delta", inputs[5].desc(), tokens)?;
        let len = placement.state_len("gated_delta", inputs[6].desc())?;
        let (qkv, vectors, position) = (inputs[0].to_f32()?, inputs[4].to_f32()?, inputs[5].to_u32()?);
        let mut states = inputs[6].to_f32()?;
        // Read once: tokens are many.
        let matrix = |input: usize| Ok::<_, crate::Error>((inputs[input].to_f32()?, inputs[input].shape.matrix()?.1));
        let matrices = [matrix(1)?, matrix(2)?, matrix(3)?];
        let part = |number: usize, row: usize, length: usize| {
            let (numbers, all) = &matrices[number];
            &numbers[row * all + self.first[number]..][..length]
        };
        let (key_dim, value_dim) = (self.key_dim, self.value_dim);
        let values = self.heads * value_dim;
        let mut out = vec![0f32; tokens * values];
        for run in placement.runs(tokens) {
            let state = &mut states[placement.first_row(&position, run.start, len)..][..len];
            let is_fresh = placement.position(&position, run.start) == 0;
            // The state's words of four elements of a key: [head, key_dim / 4, value_dim, 4].
            let at = |head: usize, i: usize, j: usize| ((head * key_dim / 4 + i / 4) * value_dim + j) * 4 + i % 4;
            let mut s: Vec<f64> = state.iter().map(|x| if is_fresh { 0.0 } else { f64::from(*x) }).collect();
            for row in run.clone() {
                let (gate, beta, alpha) = (part(0, row, values), part(1, row, self.heads), part(2, row, self.heads));
                let of_token: Vec<f64> = qkv[row * columns..][..columns].iter().map(|x| f64::from(*x)).collect();
                for head in 0..self.heads {
                    let key_head = self.key_head(head);
                    let q = &of_token[key_head * key_dim..][..key_dim];
                    let k = &of_token[(self.key_heads + key_head) * key_dim..][..key_dim];
                    let v = &of_token[2 * self.key_heads * key_dim + head * value_dim..][..value_dim];
                    let step = (f64::from(alpha[head]) + f64::from(vectors[self.heads + head])).exp().ln_1p();
                    let decay = (f64::from(vectors[head]) * step).exp();
                    let rate = 1.0 / (1.0 + (-f64::from(beta[head])).exp());
                    let mut read = vec![0.0; value_dim];
                    for j in 0..value_dim {
                        let mut row: Vec<f64> = (0..key_dim).map(|i| s[at(head, i, j)] * decay).collect();
                        let known: f64 = row.iter().zip(k).map(|(s, k)| s * k).sum();
                        row.iter_mut().zip(k).for_each(|(s, k)| *s += k * (v[j] - known) * rate);
                        read[j] = row.iter().zip(q).map(|(s, q)| s * q).sum();
                        row.into_iter().enumerate().for_each(|(i, value)| s[at(head, i, j)] = value);
                    }
                    if !self.normed {
                        let place = row * values + head * value_dim;
                        out[place..place + value_dim].iter_mut().zip(read).for_each(|(to, read)| *to = read as f32);
                        continue;
                    }
                    let mean = read.iter().map(|x| x * x).sum::<f64>() / value_dim as f64;
                    let scale = 1.0 / (mean + f64::from(self.epsilon)).sqrt();
                    for (j, read) in read.into_iter().enumerate() {
                        let gate = f64::from(gate[head * value_dim + j]);
                        let normed = read * scale * f64::from(vectors[2 * self.heads + j]);
                        out[row * values + head * value_dim + j] = (normed * gate / (1.0 + (-gate).exp())) as f32;
                    }
                }
            }
            if !placement.has_stopped(&position, run.start) {
                state.iter_mut().zip(s).take(self.heads * key_dim * value_dim).for_each(|(to, s)| *to = s as f32);
            }
        }
        if self.soa {
            out = out.chunks_exact(values).flat_map(to_soa).collect();
        }
        inputs[6].set_f32(&states);
        Ok(vec![HostTensor::f32(&[tokens, values], &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [qkv, gates, beta, alpha, vectors, position, states] = &mut tensors.inputs[..] else {
            bail!(Internal, "gated_delta without seven inputs")
        };
        let (tokens, columns) = qkv.desc.shape.matrix()?;
        let placement = Placement::of("gated_delta", position.desc, tokens)?;
        let len = placement.state_len("gated_delta", states.desc)?;
        let (values, used) = (self.heads * self.value_dim, self.heads * self.key_dim * self.value_dim);
        let (qkv, vectors, position) = (qkv.f32s()?, vectors.f32s()?, position.u32s()?);
        let part = |input: &CpuTensor<'_>, number: usize| {
            Ok::<_, crate::Error>((input.desc.shape.matrix()?.1, self.first[number]))
        };
        let (of_gate, of_beta, of_alpha) = (part(gates, 0)?, part(beta, 1)?, part(alpha, 2)?);
        let (gates, beta, alpha) = (gates.f32s()?, beta.f32s()?, alpha.f32s()?);
        let mut normed = zeros(self.value_dim)?;
        let states = states.f32s_mut()?;
        let out =
            tensors.outputs.first_mut().ok_or_else(|| err!(Internal, "gated_delta without an output"))?.f32s_mut()?;
        for run in placement.runs(tokens) {
            let state = &mut states[placement.first_row(position, run.start, len)..][..used];
            // A sequence that has stopped keeps its state.
            let mut kept = Vec::new();
            if placement.has_stopped(position, run.start) {
                kept.extend_from_slice(state);
            }
            if placement.position(position, run.start) == 0 {
                state.fill(0.0);
            }
            for row in run {
                let of_row = |numbers: &[f32], (all, first): (usize, usize), at: usize| numbers[row * all + first + at];
                let of_token = &qkv[row * columns..][..columns];
                for head in 0..self.heads {
                    let (key_head, key_dim, value_dim) = (self.key_head(head), self.key_dim, self.value_dim);
                    let q = &of_token[key_head * key_dim..][..key_dim];
                    let k = &of_token[(self.key_heads + key_head) * key_dim..][..key_dim];
                    let v = &of_token[2 * self.key_heads * key_dim + head * value_dim..][..value_dim];
                    let raw = f64::from(of_row(alpha, of_alpha, head)) + f64::from(vectors[self.heads + head]);
                    let decay = (f64::from(vectors[head]) * raw.exp().ln_1p()).exp() as f32;
                    let rate = (1.0 / (1.0 + (-f64::from(of_row(beta, of_beta, head))).exp())) as f32;
                    let state = &mut state[head * key_dim * value_dim..][..key_dim * value_dim];
                    let read = &mut out[row * values + head * value_dim..][..value_dim];
                    fits(delta_step(state, [q, k, v], [decay, rate], read))?;
                    if self.normed {
                        fits(rms_norm(read, &vectors[2 * self.heads..][..value_dim], self.epsilon, &mut normed))?;
                        let (all, first) = of_gate;
                        let gates = &gates[row * all + first + head * value_dim..];
                        gate(Activation::Silu(1.0), gates, &normed, read);
                    }
                }
                if self.soa {
                    let row = &mut out[row * values..][..values];
                    let soa = to_soa(row);
                    row.copy_from_slice(&soa);
                }
            }
            if !kept.is_empty() {
                state.copy_from_slice(&kept);
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(142);
    let mut cases = Vec::new();
    let mut case = |op: GatedDelta, tokens: usize, position: HostTensor, sequences: Option<usize>| {
        let values = op.heads * op.value_dim;
        let len = GatedDelta::state_len(op.heads, op.key_dim, op.value_dim);
        let mut qkv = rng.tensor(&[tokens, 2 * op.key_heads * op.key_dim + values]);
        // Keys of about length 1, as normed ones are.
        let scaled: Vec<f32> = qkv.to_f32().unwrap_or_default().iter().map(|x| x * 0.25).collect();
        qkv.set_f32(&scaled);
        let mut vectors = rng.tensor(&[2 * op.heads + op.value_dim]);
        // States decay.
        let decays = |(index, x): (usize, &f32)| if index < op.heads { -x.abs() } else { *x };
        let decaying: Vec<f32> = vectors.to_f32().unwrap_or_default().iter().enumerate().map(decays).collect();
        vectors.set_f32(&decaying);
        let state = sequences.map_or(vec![len], |sequences| vec![sequences, len]);
        let inputs = vec![
            qkv,
            rng.tensor(&[tokens, op.first[0] + values + 1]),
            rng.tensor(&[tokens, op.first[1] + op.heads]),
            rng.tensor(&[tokens, op.first[2] + op.heads + 3]),
            vectors,
            position,
            rng.tensor(&state),
        ];
        cases.push(Case::new(op, inputs, 2e-5));
    };
    // tokens, key_heads, heads, key_dim, value_dim, tiled, normed, soa, position, stopped
    for (tokens, key_heads, heads, key_dim, value_dim, tiled, normed, soa, position, stopped) in [
        (1, 1, 1, 4, 4, false, true, false, 0, 0),
        (1, 2, 4, 16, 16, false, true, true, 5, 0),
        (1, 2, 4, 16, 8, true, true, true, 5, 1),
        (1, 4, 8, 128, 128, true, true, true, 1, 0),
        (7, 1, 3, 20, 12, false, true, false, 3, 0),
        (3, 2, 2, 16, 16, false, true, true, 9, 0),
        (65, 2, 4, 16, 32, true, true, false, 0, 0),
        (5, 1, 1, 256, 256, false, true, false, 2, 0),
        // What is read alone, around the lengths of chunks, and of many chunks.
        (1, 1, 2, 64, 48, false, false, true, 4, 0),
        (1, 1, 2, 64, 36, false, false, false, 4, 0),
        (2, 1, 2, 8, 4, false, false, false, 0, 0),
        (7, 1, 2, 20, 20, false, false, false, 1, 1),
        (8, 1, 2, 16, 16, true, false, false, 0, 0),
        (9, 2, 2, 36, 64, false, false, false, 6, 0),
        (15, 1, 3, 32, 12, false, false, false, 0, 0),
        (16, 2, 4, 128, 128, true, false, false, 3, 0),
        (17, 2, 4, 128, 20, true, false, false, 0, 0),
        (211, 1, 2, 64, 48, false, false, false, 17, 0),
    ] {
        let first = [tokens % 3, 4, 2];
        let op = GatedDelta { key_heads, heads, key_dim, value_dim, tiled, first, normed, epsilon: 1e-6, soa };
        case(op, tokens, HostTensor::u32(&[4], &[position, 1, stopped, 0]), None);
    }
    // Four sequences in another order than in the state: one begins, and one has stopped.
    for normed in [true, false] {
        let op = GatedDelta {
            key_heads: 2,
            heads: 4,
            key_dim: 16,
            value_dim: 16,
            tiled: false,
            first: [0; 3],
            normed,
            epsilon: 1e-6,
            soa: normed,
        };
        let position = HostTensor::u32(&[4, 4], &[3, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1, 12, 7, 0, 4]);
        case(op, 4, position, Some(5));
    }
    cases
}
