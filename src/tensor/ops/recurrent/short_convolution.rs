//! The causal convolution of a gated delta net over the last few tokens, channel by channel, its SiLU, and the L2 norms of queries and keys
//! (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule"). The inputs of the last tokens are the state.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns], which holds the channels from column `first` on, weights [channels · taps] (the taps of a channel side by
/// side, the present token's last), position [4] u32 (the position of the first token, a step, whether the sequence has stopped, the
/// number of the sequence) or [tokens, 4] for tokens of different sequences, and the state (changed), [len] or [sequences, len], with the
/// taps − 1 last inputs of all channels. Output: [tokens, channels]: queries, keys, values. At position 0 the old state counts as zero,
/// and that of a sequence that has stopped stays the same.
#[derive(Clone, Copy, Debug)]
pub struct ShortConvolution {
    /// The first column of x that is a channel.
    pub first: usize,
    /// Heads of queries, and of keys.
    pub key_heads: usize,
    /// The length of a query or key, at most 256.
    pub key_dim: usize,
    /// All channels: queries, keys and values.
    pub channels: usize,
    /// Tokens that a token sees, itself included; 2 to 16.
    pub taps: usize,
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

    fn normed(&self) -> usize {
        2 * self.key_heads * self.key_dim
    }
}

impl Op for ShortConvolution {
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
        let fits = self.first + self.channels <= columns
            && self.normed() <= self.channels
            && (1..=256).contains(&self.key_dim)
            && (2..=Self::MAX_TAPS).contains(&self.taps)
            && inputs[1].shape.elements() == self.channels * self.taps
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
        let heads = self.channels.div_ceil(self.key_dim);
        let chunks = if placement == Placement::Sequences { tokens } else { tokens.div_ceil(CHUNK) };
        let mut defines = placement.defines();
        defines.extend([
            ("HEAD", Define::U32(self.key_dim as u32)),
            ("TAPS", Define::U32(self.taps as u32)),
            ("CHUNK", Define::U32(CHUNK as u32)),
        ]);
        let queries = self.key_heads * self.key_dim;
        let numbers = [heads * chunks, heads, tokens, columns, self.first, self.channels, queries, self.normed(), len];
        let scale = 1.0 / (self.key_dim as f32).sqrt();
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
                text.extend_from_slice(&x[token * columns + self.first..][..self.channels]);
                let last = text.len() / self.channels - self.taps;
                let mut values: Vec<f64> = (0..self.channels)
                    .map(|channel| {
                        let taps = 0..self.taps;
                        let sum: f64 = taps
                            .map(|tap| {
                                f64::from(weights[channel * self.taps + tap])
                                    * f64::from(text[(last + tap) * self.channels + channel])
                            })
                            .sum();
                        sum / (1.0 + (-sum).exp())
                    })
                    .collect();
                for (head, values) in values[..self.normed()].chunks_exact_mut(self.key_dim).enumerate() {
                    let scale = if head < self.key_heads { (self.key_dim as f64).sqrt().recip() } else { 1.0 };
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
        Ok(vec![HostTensor::f32(&[tokens, self.channels], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(141);
    let mut cases = Vec::new();
    // tokens, key heads, key_dim, channels, taps, first, position, stopped
    for (tokens, key_heads, key_dim, channels, taps, first, position, stopped) in [
        (1, 1, 4, 12, 4, 0, 0, 0),
        (1, 2, 16, 104, 4, 3, 7, 0),
        (2, 2, 16, 96, 4, 0, 5, 0),
        (3, 1, 128, 512, 4, 0, 9, 1),
        (33, 2, 16, 80, 4, 5, 0, 0),
        (50, 1, 36, 100, 3, 0, 4, 0),
        (17, 1, 256, 512, 16, 0, 3, 0),
        (5, 1, 8, 24, 2, 0, 3, 0),
    ] {
        let op = ShortConvolution { first, key_heads, key_dim, channels, taps };
        let inputs = vec![
            rng.tensor(&[tokens, first + channels + 2]),
            rng.tensor(&[channels * taps]),
            HostTensor::u32(&[4], &[position, 1, stopped, 0]),
            rng.tensor(&[ShortConvolution::state_len(channels, taps)]),
        ];
        cases.push(Case::new(op, inputs, 1e-5));
    }
    // Four sequences in another order than in the state: one begins, and one has stopped.
    let op = ShortConvolution { first: 1, key_heads: 2, key_dim: 16, channels: 96, taps: 4 };
    let position = [3, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1, 12, 7, 0, 4];
    let inputs = vec![
        rng.tensor(&[4, 100]),
        rng.tensor(&[96 * 4]),
        HostTensor::u32(&[4, 4], &position),
        rng.tensor(&[5, ShortConvolution::state_len(96, 4)]),
    ];
    cases.push(Case::new(op, inputs, 1e-5));
    cases
}
