//! The causal convolution over the last few tokens, channel by channel, of a recurrent layer: with SiLU (Mamba: Gu, Dao 2023), with the L2
//! norms of queries and keys besides (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule"), or between two gates
//! (LFM2, Liquid AI 2025). The inputs of the last tokens are the state.

use rillm_cpu_kernels::{Activation, activate, add_products, l2_norm, multiply};

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::{fits, zeros};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{rows_to_soa, write_row};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns], which holds the channels from column `first` on, weights [channels · taps] (the taps of a channel side by
/// side, the present token's last; with `bias`, a number for each channel after them), position [4] u32 (the position of the first token, a
/// step, whether the sequence has stopped, the number of the sequence) or [tokens, 4] for tokens of different sequences, and the state
/// (changed), [len] or [sequences, len], with the taps − 1 last inputs of all channels. Output: [tokens, channels]. At position 0 the old
/// state counts as zero, and that of a sequence that has stopped stays the same.
#[derive(Clone, Copy, Debug)]
pub struct ShortConvolution {
    /// The first column of x that is a channel.
    pub first: usize,
    /// All channels.
    pub channels: usize,
    /// Tokens that a token sees, itself included; 2 to 16.
    pub taps: usize,
    /// Whether channels have a bias.
    pub bias: bool,
    /// What goes in and what comes out.
    pub form: ConvolutionForm,
}

/// What a short convolution takes as a channel's input, and what becomes of its sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionForm {
    /// SiLU.
    Silu,
    /// SiLU; the first channels are heads of queries, then of keys, and get an L2 norm, which is divided by √dim for queries.
    Keys {
        /// Heads of queries, and of keys.
        heads: usize,
        /// The length of a query or key, at most 256.
        dim: usize,
    },
    /// x has three parts of all channels side by side: the input is the product of the first and the third, and the sum is multiplied by the
    /// second.
    Gated {
        /// Rows of the output are in SoA (`tensor/soa.rs`).
        soa: bool,
    },
}

/// Consecutive tokens of a workgroup; at least as many as a state holds.
const CHUNK: usize = 16;

/// ε of the L2 norms.
const EPSILON: f64 = 1e-6;

impl ShortConvolution {
    /// The most tokens that a token may see.
    pub const MAX_TAPS: usize = CHUNK;

    /// How many f32 the state of a sequence has. Parts of sequences can be bound alone.
    pub fn state_len(channels: usize, taps: usize) -> usize {
        (channels * (taps - 1)).next_multiple_of(64)
    }

    /// Heads of queries, and of keys, and their length; of other forms, how many channels a workgroup takes.
    fn keys(&self) -> (usize, usize) {
        match self.form {
            ConvolutionForm::Keys { heads, dim } => (heads, dim),
            ConvolutionForm::Silu | ConvolutionForm::Gated { .. } => (0, 64),
        }
    }

    fn normed(&self) -> usize {
        let (heads, dim) = self.keys();
        2 * heads * dim
    }

    fn is_gated(&self) -> bool {
        matches!(self.form, ConvolutionForm::Gated { .. })
    }

    fn is_soa(&self) -> bool {
        self.form == ConvolutionForm::Gated { soa: true }
    }
}

impl Op for ShortConvolution {
    on_cpu!();

    fn name(&self) -> &'static str {
        "short_convolution"
    }

    fn mutates(&self) -> &'static [usize] {
        &[3]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("short_convolution", inputs, &[f32, f32, Some(DType::U32), f32])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("short_convolution", inputs[2], tokens)?;
        let len = placement.state_len("short_convolution", inputs[3])?;
        let parts = if self.is_gated() { 3 } else { 1 };
        let fits = self.channels > 0
            && self.first + parts * self.channels <= columns
            && self.normed() <= self.channels
            && (1..=256).contains(&self.keys().1)
            && (2..=Self::MAX_TAPS).contains(&self.taps)
            && (!self.is_soa() || self.channels.is_multiple_of(BLOCK))
            && inputs[1].shape.elements() == self.channels * (self.taps + usize::from(self.bias))
            && len >= self.channels * (self.taps - 1);
        if !fits {
            bail!(
                ShapeMismatch,
                "short_convolution: x {}, weights {}, state {}; {self:?}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[3].shape
            );
        }
        Ok(vec![Desc::f32(&[tokens, self.channels])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("short_convolution", inputs[2], tokens)?;
        let len = placement.state_len("short_convolution", inputs[3])?;
        let (key_heads, dim) = self.keys();
        let heads = self.channels.div_ceil(dim);
        let chunks = if placement == Placement::Sequences { tokens } else { tokens.div_ceil(CHUNK) };
        let mut defines = placement.defines();
        defines.extend([
            ("HEAD", Define::U32(dim as u32)),
            ("TAPS", Define::U32(self.taps as u32)),
            ("CHUNK", Define::U32(CHUNK as u32)),
        ]);
        for (name, applies) in
            [("BIASED", self.bias), ("NORMED", self.normed() > 0), ("GATED", self.is_gated()), ("SOA", self.is_soa())]
        {
            defines.extend(applies.then_some((name, Define::Flag)));
        }
        let queries = key_heads * dim;
        let numbers = [heads * chunks, heads, tokens, columns, self.first, self.channels, queries, self.normed(), len];
        let scale = 1.0 / (dim as f32).sqrt();
        Ok(Kernel {
            template: crate::shader!("short_convolution.wgsl"),
            modules: &[],
            defines,
            params: numbers.map(|number| number as u32).into_iter().chain([scale.to_bits()]).collect(),
            grid: grid_2d(heads * chunks, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for ShortConvolution {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("short_convolution", inputs[2].desc(), tokens)?;
        let len = placement.state_len("short_convolution", inputs[3].desc())?;
        let (x, weights, position) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_u32()?);
        let mut states = inputs[3].to_f32()?;
        let mut out = Vec::new();
        for run in placement.runs(tokens) {
            let state = &mut states[placement.first_row(&position, run.start, len)..][..len];
            let kept = self.channels * (self.taps - 1);
            let mut text =
                if placement.position(&position, run.start) == 0 { vec![0.0; kept] } else { state[..kept].to_vec() };
            for token in run.clone() {
                let row = &x[token * columns + self.first..(token + 1) * columns];
                let part = |number: usize| &row[number * self.channels..][..self.channels];
                if self.is_gated() {
                    text.extend(part(0).iter().zip(part(2)).map(|(b, x)| b * x));
                } else {
                    text.extend_from_slice(part(0));
                }
                let last = text.len() / self.channels - self.taps;
                let sum = |channel: usize| {
                    let tap = |tap: usize| {
                        let weight = weights[channel * self.taps + tap];
                        f64::from(weight) * f64::from(text[(last + tap) * self.channels + channel])
                    };
                    let bias = if self.bias { weights[self.channels * self.taps + channel] } else { 0.0 };
                    f64::from(bias) + (0..self.taps).map(tap).sum::<f64>()
                };
                let mut values: Vec<f64> = (0..self.channels)
                    .map(|channel| {
                        let sum = sum(channel);
                        if self.is_gated() { sum * f64::from(part(1)[channel]) } else { sum / (1.0 + (-sum).exp()) }
                    })
                    .collect();
                let (key_heads, dim) = self.keys();
                for (head, values) in values[..self.normed()].chunks_exact_mut(dim).enumerate() {
                    let scale = if head < key_heads { (dim as f64).sqrt().recip() } else { 1.0 };
                    let squares: f64 = values.iter().map(|value| value * value).sum();
                    values.iter_mut().for_each(|value| *value *= scale / (squares + EPSILON).sqrt());
                }
                out.extend(values.into_iter().map(|value| value as f32));
            }
            if !placement.has_stopped(&position, run.start) {
                state[..kept].copy_from_slice(&text[text.len() - kept..]);
            }
        }
        inputs[3].set_f32(&states);
        let out = HostTensor::f32(&[tokens, self.channels], &out);
        Ok(vec![if self.is_soa() { rows_to_soa(&out)? } else { out }])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, weights, position, states] = &mut tensors.inputs[..] else {
            bail!(Internal, "short_convolution without four inputs")
        };
        let (tokens, columns) = x.desc.shape.matrix()?;
        let placement = Placement::of("short_convolution", position.desc, tokens)?;
        let len = placement.state_len("short_convolution", states.desc)?;
        let (x, position, states) = (x.f32s()?, position.u32s()?, states.f32s_mut()?);
        let (channels, before) = (self.channels, self.taps - 1);
        let (weights, bias) = weights.f32s()?.split_at(channels * self.taps);
        // Tap by tap, so that channels are neighbours.
        let mut of_taps = zeros(weights.len())?;
        for (channel, weights) in weights.chunks_exact(self.taps).enumerate() {
            for (tap, weight) in weights.iter().enumerate() {
                of_taps[tap * channels + channel] = *weight;
            }
        }
        let out = tensors
            .outputs
            .first_mut()
            .ok_or_else(|| err!(Internal, "short_convolution without an output"))?
            .f32s_mut()?;
        let mut sums = zeros(channels)?;
        // The inputs that the present token sees, as a ring: what came first is at the sequence's number of it, modulo the taps.
        let mut seen = zeros(channels * self.taps)?;
        for run in placement.runs(tokens) {
            let state = &mut states[placement.first_row(position, run.start, len)..][..before * channels];
            if placement.position(position, run.start) == 0 {
                seen.fill(0.0);
            } else {
                seen[..state.len()].copy_from_slice(state);
            }
            let place = |number: usize| number % self.taps * channels;
            for (first, token) in run.clone().enumerate() {
                let row = &x[token * columns + self.first..(token + 1) * columns];
                let part = |number: usize| &row[number * channels..][..channels];
                let present = &mut seen[place(first + before)..][..channels];
                present.copy_from_slice(part(0));
                if self.is_gated() {
                    multiply(present, part(2));
                }
                if self.bias {
                    sums.copy_from_slice(bias);
                } else {
                    sums.fill(0.0);
                }
                for (tap, weights) in of_taps.chunks_exact(channels).enumerate() {
                    fits(add_products(&mut sums, weights, &seen[place(first + tap)..][..channels]))?;
                }
                if self.is_gated() {
                    multiply(&mut sums, part(1));
                } else {
                    activate(Activation::Silu(1.0), &mut sums);
                }
                let (key_heads, dim) = self.keys();
                for (head, values) in sums[..self.normed()].chunks_exact_mut(dim).enumerate() {
                    let factor = if head < key_heads { (dim as f32).sqrt().recip() } else { 1.0 };
                    l2_norm(values, factor, EPSILON as f32);
                }
                write_row(&sums, self.is_soa(), &mut out[token * channels..][..channels]);
            }
            if !placement.has_stopped(position, run.start) {
                for (number, state) in (run.len()..).zip(state.chunks_exact_mut(channels)) {
                    state.copy_from_slice(&seen[place(number)..][..channels]);
                }
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(141);
    let mut cases = Vec::new();
    let mut case = |op: ShortConvolution, tokens: usize, position: HostTensor, sequences: Option<usize>| {
        let len = ShortConvolution::state_len(op.channels, op.taps);
        let parts = if op.is_gated() { 3 } else { 1 };
        let inputs = vec![
            rng.tensor(&[tokens, op.first + parts * op.channels + 2]),
            rng.tensor(&[op.channels * (op.taps + usize::from(op.bias))]),
            position,
            rng.tensor(&sequences.map_or(vec![len], |sequences| vec![sequences, len])),
        ];
        cases.push(Case::new(op, inputs, 1e-5));
    };
    let (silu, gated) = (ConvolutionForm::Silu, |soa: bool| ConvolutionForm::Gated { soa });
    let keys = |heads: usize, dim: usize| ConvolutionForm::Keys { heads, dim };
    // tokens, form, channels, taps, bias, first, position, stopped
    for (tokens, form, channels, taps, bias, first, position, stopped) in [
        (1, keys(1, 4), 12, 4, false, 0, 0, 0),
        (1, keys(2, 16), 104, 4, false, 3, 7, 0),
        (2, keys(2, 16), 96, 4, false, 0, 5, 0),
        (3, keys(1, 128), 512, 4, false, 0, 9, 1),
        (33, keys(2, 16), 80, 4, true, 5, 0, 0),
        (50, keys(1, 36), 100, 3, false, 0, 4, 0),
        (17, keys(1, 256), 512, 16, false, 0, 3, 0),
        (5, keys(1, 8), 24, 2, false, 0, 3, 0),
        (1, silu, 1, 2, false, 0, 4, 0),
        (1, silu, 67, 4, true, 33, 0, 0),
        (35, silu, 200, 4, true, 9, 11, 0),
        (2, silu, 64, 16, false, 0, 5, 1),
        (1, gated(true), 32, 3, false, 0, 0, 0),
        (1, gated(true), 2080, 3, true, 0, 6, 0),
        (3, gated(true), 96, 7, false, 0, 1, 0),
        (49, gated(false), 131, 3, true, 4, 2, 0),
        (16, gated(false), 5, 2, false, 1, 0, 0),
        (2, gated(false), 64, 3, false, 0, 8, 1),
    ] {
        let op = ShortConvolution { first, channels, taps, bias, form };
        case(op, tokens, HostTensor::u32(&[4], &[position, 1, stopped, 0]), None);
    }
    // Four sequences in another order than in the state: one begins, and one has stopped.
    for form in [keys(2, 16), silu, gated(true), gated(false)] {
        let op = ShortConvolution { first: 1, channels: 96, taps: 4, bias: form == silu, form };
        let position = HostTensor::u32(&[4, 4], &[3, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1, 12, 7, 0, 4]);
        case(op, 4, position, Some(5));
    }
    cases
}
