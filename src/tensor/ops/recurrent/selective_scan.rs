//! The recurrence of a selective state space model, token after token (Gu, Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective
//! State Spaces"; Dao, Gu 2024, "Transformers are SSMs", Mamba-2). Each channel has a state of some numbers: a token with input x, step Δ, B
//! and C makes of it s ← exp(A Δ) s + Δ x B, and reads C·s + D x.
//!
//! A prompt goes token after token too. Mamba-2's form of whole chunks needs about as many products, which pays where the units for matrices do
//! them; WGSL has none. Here channels are independent of each other, and lanes share a channel's state.

use rillm_cpu_kernels::scan_step;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::fits;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{rows_to_soa, to_soa};
use crate::tensor::{Case, CpuTensor, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns], whose first columns are the channels, head by head; B and C, columns of a matrix [tokens, columns], each
/// [groups · state]; the steps before bias and softplus, [heads] columns of a matrix; vectors (A, negative, for each head, or with `matrix`
/// [heads, state]; a bias of each head's step; D of each head); position [4] u32 or [tokens, 4], and the state (changed), [len] or
/// [sequences, len], both as `short_convolution` has them; with `gate` the gate, columns of a matrix. Output: [tokens, heads · head_dim].
#[derive(Clone, Copy, Debug)]
pub struct SelectiveScan {
    /// Heads share a step, and if not `matrix` an A.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C; divides `heads`.
    pub groups: usize,
    /// The numbers of a channel's state, a multiple of 4 of at most 256.
    pub state: usize,
    /// Every number of a head's state has an A of its own (Mamba-1), instead of one for all (Mamba-2).
    pub matrix: bool,
    /// The first columns of B, C and the steps in their matrices.
    pub first: [usize; 3],
    /// The factor of the steps, before their bias.
    pub dt_scale: f32,
    /// The result is multiplied by SiLU(scale · gate): the gate's first column, and the scale.
    pub gate: Option<(usize, f32)>,
    /// Rows of the output are in SoA (`tensor/soa.rs`).
    pub soa: bool,
}

/// Channels of a workgroup.
const CHANNELS: usize = 64;
/// The most words of four numbers that an invocation keeps, if lanes can share them.
const WORDS: usize = 16;
/// Channels of a workgroup whose lanes share a state in a subgroup.
const SHARED_CHANNELS: usize = 16;
/// The most lanes that share one there.
const MOST_LANES: u32 = 8;
/// Tokens that are in workgroup memory at once.
const CHUNKS: [usize; 3] = [16, 8, 1];

impl SelectiveScan {
    /// The longest state of a channel.
    pub const MAX_STATE: usize = 256;

    /// How many f32 the state of a sequence has. Parts of sequences can be bound alone.
    pub fn state_len(channels: usize, state: usize) -> usize {
        (channels * state).next_multiple_of(64)
    }

    fn channels(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Invocations that share the state of a channel.
    fn lanes(&self) -> usize {
        let words = self.state / 4;
        [1, 2, 4].into_iter().find(|lanes| words.is_multiple_of(*lanes) && words / lanes <= WORDS).unwrap_or(1)
    }

    /// Lanes of a subgroup that share a state, and the tokens in workgroup memory at once. None where heads are no whole workgroups, where
    /// lanes can't share, or where a barrier costs more than that gains.
    fn shares(&self, tokens: usize, capabilities: &Capabilities) -> Option<(usize, usize)> {
        let most = subgroup_lanes(capabilities, MOST_LANES).filter(|_| !capabilities.software)? as usize;
        if self.matrix || !self.head_dim.is_multiple_of(SHARED_CHANNELS) {
            return None;
        }
        let words = self.state / 4;
        let lanes = [8, 4, 2].into_iter().find(|lanes| *lanes <= most && words.is_multiple_of(*lanes))?;
        let wanted = CHUNKS.into_iter().filter(|chunk| if tokens == 1 { *chunk == 1 } else { *chunk / 2 < tokens });
        let fits = |chunk: &usize| {
            let bytes = 4 * chunk * (2 * self.state + SHARED_CHANNELS + 2);
            bytes <= capabilities.max_workgroup_storage_size as usize && words / lanes <= WORDS
        };
        wanted.into_iter().find(fits).map(|chunk| (lanes, chunk))
    }

    /// How many A there are.
    fn factors(&self) -> usize {
        self.heads * if self.matrix { self.state } else { 1 }
    }
}

impl Op for SelectiveScan {
    on_cpu!();

    fn name(&self) -> &'static str {
        "selective_scan"
    }

    fn mutates(&self) -> &'static [usize] {
        &[5]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let wanted = [f32, f32, f32, f32, Some(DType::U32), f32, f32];
        expect("selective_scan", inputs, &wanted[..6 + usize::from(self.gate.is_some())])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("selective_scan", inputs[4], tokens)?;
        let len = placement.state_len("selective_scan", inputs[5])?;
        let holds = |input: usize, first: usize, count: usize| matches!(inputs[input].shape.dims(), [rows, all] if *rows == tokens && first + count <= *all);
        let fits = self.channels() > 0
            && self.groups > 0
            && self.heads.is_multiple_of(self.groups)
            && self.state.is_multiple_of(4)
            && (4..=Self::MAX_STATE).contains(&self.state)
            && self.channels() <= columns
            && [self.first[0], self.first[1]].iter().all(|first| holds(1, *first, self.groups * self.state))
            && holds(2, self.first[2], self.heads)
            && inputs[3].shape.elements() == self.factors() + 2 * self.heads
            && len >= self.channels() * self.state
            && len.is_multiple_of(4)
            && self.gate.is_none_or(|(first, _)| holds(6, first, self.channels()))
            && (!self.soa || self.channels().is_multiple_of(BLOCK));
        if !fits {
            let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
            bail!(ShapeMismatch, "selective_scan: {shapes:?} for {self:?}");
        }
        Ok(vec![Desc::f32(&[tokens, self.channels()])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let columns = |input: usize| Ok::<_, crate::Error>(inputs[input].shape.matrix()?.1);
        let (tokens, x_columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("selective_scan", inputs[4], tokens)?;
        let len = placement.state_len("selective_scan", inputs[5])?;
        let runs = placement.runs(tokens);
        let shares = self.shares(runs.first().map_or(1, |run| run.len()), capabilities);
        let channels = if shares.is_some() { SHARED_CHANNELS } else { CHANNELS };
        let blocks = self.channels().div_ceil(channels);
        let items = blocks * runs.len();
        let mut defines = placement.defines();
        defines.push(("CHANNELS", Define::U32(channels as u32)));
        let template = if let Some((lanes, chunk)) = shares {
            defines.extend(lanes_defines((channels * lanes) as u32, Some(lanes as u32)));
            let own = self.state / 4 / lanes;
            defines.extend([("OWN", Define::U32(own as u32)), ("CHUNK", Define::U32(chunk as u32))]);
            crate::shader!("selective_scan_shared.wgsl")
        } else {
            let lanes = self.lanes();
            defines.extend([
                ("LANES", Define::U32(lanes as u32)),
                ("WORKGROUP", Define::U32((channels * lanes) as u32)),
                ("WORDS_OF_LANE", Define::U32((self.state / 4 / lanes) as u32)),
            ]);
            for (name, applies) in [("SEVERAL", lanes > 1), ("MATRIX", self.matrix)] {
                defines.extend(applies.then_some((name, Define::Flag)));
            }
            crate::shader!("selective_scan.wgsl")
        };
        for (name, applies) in [("GATED", self.gate.is_some()), ("SOA", self.soa)] {
            defines.extend(applies.then_some((name, Define::Flag)));
        }
        let (gate_first, gate_scale) = self.gate.unwrap_or((0, 1.0));
        let gate_columns = if self.gate.is_some() { columns(6)? } else { 0 };
        let [b, c, dt] = self.first;
        let numbers = [
            items,
            blocks,
            self.channels(),
            self.head_dim,
            self.heads / self.groups,
            self.heads,
            tokens,
            x_columns,
            columns(1)?,
            b,
            c,
            columns(2)?,
            dt,
            gate_columns,
            gate_first,
            len,
        ];
        let scales = [self.dt_scale.to_bits(), gate_scale.to_bits()];
        Ok(Kernel {
            template,
            modules: &[],
            defines,
            params: numbers.map(|number| number as u32).into_iter().chain(scales).collect(),
            grid: grid_2d(items, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SelectiveScan {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, x_columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("selective_scan", inputs[4].desc(), tokens)?;
        let len = placement.state_len("selective_scan", inputs[5].desc())?;
        let channels = self.channels();
        let matrix = |input: usize| {
            let (_, columns) = inputs[input].shape.matrix()?;
            let numbers: Vec<f64> = inputs[input].to_f32()?.into_iter().map(f64::from).collect();
            Ok::<_, crate::Error>((numbers, columns))
        };
        let ((bc, bc_columns), (dt, dt_columns)) = (matrix(1)?, matrix(2)?);
        let gate = self.gate.map(|(first, scale)| Ok::<_, crate::Error>((matrix(6)?, first, scale))).transpose()?;
        let (x, vectors, position) = (inputs[0].to_f32()?, inputs[3].to_f32()?, inputs[4].to_u32()?);
        let mut states = inputs[5].to_f32()?;
        let factors = self.factors();
        let mut out = vec![0f32; tokens * channels];
        for run in placement.runs(tokens) {
            let state = &mut states[placement.first_row(&position, run.start, len)..][..len];
            let is_fresh = placement.position(&position, run.start) == 0;
            // The state's words of four numbers: [state / 4, channels, 4].
            let at = |channel: usize, i: usize| (i / 4 * channels + channel) * 4 + i % 4;
            let mut s: Vec<f64> = state.iter().map(|x| if is_fresh { 0.0 } else { f64::from(*x) }).collect();
            for row in run.clone() {
                for channel in 0..channels {
                    let head = channel / self.head_dim;
                    let group = head / (self.heads / self.groups);
                    let raw = dt[row * dt_columns + self.first[2] + head] * f64::from(self.dt_scale);
                    let step = (raw + f64::from(vectors[factors + head])).exp().ln_1p();
                    let input = f64::from(x[row * x_columns + channel]);
                    let mut read = f64::from(vectors[factors + self.heads + head]) * input;
                    for i in 0..self.state {
                        let factor = vectors[if self.matrix { head * self.state + i } else { head }];
                        let column = row * bc_columns + group * self.state + i;
                        let number = &mut s[at(channel, i)];
                        *number =
                            *number * (f64::from(factor) * step).exp() + bc[column + self.first[0]] * step * input;
                        read += *number * bc[column + self.first[1]];
                    }
                    if let Some(((gate, columns), first, scale)) = &gate {
                        let gate = gate[row * columns + first + channel] * f64::from(*scale);
                        read *= gate / (1.0 + (-gate).exp());
                    }
                    out[row * channels + channel] = read as f32;
                }
            }
            if !placement.has_stopped(&position, run.start) {
                state.iter_mut().zip(s).take(channels * self.state).for_each(|(to, s)| *to = s as f32);
            }
        }
        inputs[5].set_f32(&states);
        let out = HostTensor::f32(&[tokens, channels], &out);
        Ok(vec![if self.soa { rows_to_soa(&out)? } else { out }])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let columns = |input: usize| Ok::<_, crate::Error>(tensors.input(input)?.desc.shape.matrix()?.1);
        let (x_columns, bc_columns, dt_columns) = (columns(0)?, columns(1)?, columns(2)?);
        let gate_columns = if self.gate.is_some() { columns(6)? } else { 0 };
        let [x, bc, dt, vectors, position, states, gate @ ..] = &mut tensors.inputs[..] else {
            bail!(Internal, "selective_scan without six inputs")
        };
        let (tokens, _) = x.desc.shape.matrix()?;
        let placement = Placement::of("selective_scan", position.desc, tokens)?;
        let len = placement.state_len("selective_scan", states.desc)?;
        let (channels, factors) = (self.channels(), self.factors());
        let (x, bc, dt, vectors, position) = (x.f32s()?, bc.f32s()?, dt.f32s()?, vectors.f32s()?, position.u32s()?);
        let gate: &[f32] = gate.first().map_or(Ok(&[][..]), CpuTensor::f32s)?;
        let states = states.f32s_mut()?;
        let out = tensors
            .outputs
            .first_mut()
            .ok_or_else(|| err!(Internal, "selective_scan without an output"))?
            .f32s_mut()?;
        // Of each channel what a token adds, and four sums.
        let (mut added, mut sums) = (vec![0f32; self.head_dim], vec![[0f32; 4]; self.head_dim]);
        for run in placement.runs(tokens) {
            let state = &mut states[placement.first_row(position, run.start, len)..][..channels * self.state];
            // A sequence that has stopped keeps its state.
            let mut kept = Vec::new();
            if placement.has_stopped(position, run.start) {
                kept.extend_from_slice(state);
            }
            if placement.position(position, run.start) == 0 {
                state.fill(0.0);
            }
            for row in run {
                let of_row = &mut out[row * channels..][..channels];
                for head in 0..self.heads {
                    let first = head * self.head_dim;
                    let raw = dt[row * dt_columns + self.first[2] + head] * self.dt_scale + vectors[factors + head];
                    let step = f64::from(raw).exp().ln_1p();
                    let decay = |i: usize| {
                        let factor = vectors[if self.matrix { head * self.state + i } else { head }];
                        (f64::from(factor) * step).exp() as f32
                    };
                    let of_head = if self.matrix { 0.0 } else { decay(0) };
                    let x = &x[row * x_columns + first..][..self.head_dim];
                    added.iter_mut().zip(x).for_each(|(added, x)| *added = step as f32 * x);
                    sums.fill([0.0; 4]);
                    let group = head / (self.heads / self.groups) * self.state;
                    for word in 0..self.state / 4 {
                        let four = |first: usize| {
                            std::array::from_fn(|lane| bc[row * bc_columns + first + group + 4 * word + lane])
                        };
                        let (b, c) = (four(self.first[0]), four(self.first[1]));
                        let decays: [f32; 4] =
                            std::array::from_fn(|lane| if self.matrix { decay(4 * word + lane) } else { of_head });
                        let state = &mut state[(word * channels + first) * 4..][..4 * self.head_dim];
                        fits(scan_step(state, [decays, b, c], &added, &mut sums))?;
                    }
                    let skip = vectors[factors + self.heads + head];
                    for (channel, ((out, sum), x)) in of_row[first..].iter_mut().zip(&sums).zip(x).enumerate() {
                        *out = skip * x + sum.iter().sum::<f32>();
                        if let Some((first_gate, scale)) = self.gate {
                            let gate = gate[row * gate_columns + first_gate + first + channel] * scale;
                            *out *= gate / (1.0 + (-gate).exp());
                        }
                    }
                }
                if self.soa {
                    let soa = to_soa(of_row);
                    of_row.copy_from_slice(&soa);
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
    let mut rng = Rng(144);
    let mut cases = Vec::new();
    let mut case = |op: SelectiveScan, tokens: usize, position: HostTensor, sequences: Option<usize>| {
        let (channels, len) = (op.channels(), SelectiveScan::state_len(op.channels(), op.state));
        let mut vectors = rng.tensor(&[op.factors() + 2 * op.heads]);
        // States decay.
        let decays = |(index, x): (usize, &f32)| if index < op.factors() { -x.abs() } else { *x };
        let decaying: Vec<f32> = vectors.to_f32().unwrap_or_default().iter().enumerate().map(decays).collect();
        vectors.set_f32(&decaying);
        let [b, c, dt] = op.first;
        let mut inputs = vec![
            rng.tensor(&[tokens, channels + 3]),
            rng.tensor(&[tokens, b.max(c) + op.groups * op.state]),
            rng.tensor(&[tokens, dt + op.heads + 1]),
            vectors,
            position,
            rng.tensor(&sequences.map_or(vec![len], |sequences| vec![sequences, len])),
        ];
        inputs.extend(op.gate.map(|(first, _)| rng.tensor(&[tokens, first + channels + 2])));
        cases.push(Case::new(op, inputs, 2e-5));
    };
    // tokens, heads, head_dim, groups, state, matrix, gate, soa, position, stopped
    for (tokens, heads, head_dim, groups, state, matrix, gate, soa, position, stopped) in [
        (1, 1, 1, 1, 4, false, None, false, 0, 0),
        (1, 2, 16, 1, 16, false, Some((0, 1.0)), true, 5, 0),
        (1, 64, 64, 8, 128, false, None, false, 1, 0),
        (7, 3, 7, 3, 12, false, Some((5, 0.5)), false, 3, 1),
        (67, 4, 16, 2, 64, false, None, false, 0, 0),
        (5, 2, 32, 1, 256, false, Some((1, 2.0)), true, 2, 0),
        (3, 2, 5, 2, 68, false, None, false, 2, 0),
        (1, 32, 1, 1, 16, true, Some((32, 1.0)), true, 0, 0),
        (1, 2053, 1, 1, 16, true, Some((0, 1.0)), false, 4, 0),
        (41, 96, 1, 1, 8, true, Some((3, 1.0)), false, 9, 0),
        (2, 5, 1, 1, 144, true, None, false, 7, 1),
        // Around the lengths of chunks, and of many chunks.
        (2, 2, 16, 1, 8, false, None, true, 3, 0),
        (8, 3, 48, 3, 32, false, Some((5, 0.5)), false, 0, 0),
        (9, 2, 64, 1, 128, false, None, false, 0, 0),
        (15, 2, 16, 2, 36, false, None, true, 0, 0),
        (16, 2, 32, 1, 128, false, Some((2, 1.0)), true, 8, 0),
        (17, 1, 80, 1, 200, false, None, false, 0, 1),
        (211, 4, 16, 2, 64, false, None, false, 2, 0),
    ] {
        let first = [groups * state + 1, 1, 2];
        case(
            SelectiveScan { heads, head_dim, groups, state, matrix, first, dt_scale: 0.75, gate, soa },
            tokens,
            HostTensor::u32(&[4], &[position, 1, stopped, 0]),
            None,
        );
    }
    // Four sequences in another order than in the state: one begins, and one has stopped.
    for (heads, head_dim, groups, matrix) in [(4, 16, 2, false), (64, 1, 1, true)] {
        let op = SelectiveScan {
            heads,
            head_dim,
            groups,
            state: 16,
            matrix,
            first: [0, 32, 0],
            dt_scale: 1.0,
            gate: Some((0, 1.0)),
            soa: true,
        };
        let position = HostTensor::u32(&[4, 4], &[3, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1, 12, 7, 0, 4]);
        case(op, 4, position, Some(5));
    }
    cases
}
