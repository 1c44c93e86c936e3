//! The second of an adapter's two products (LoRA, Hu et al. 2021): y += scale · B·h, where h = A·x is the first. The scale is that of the
//! adapter in the token's sequence, which stands in a tensor: so one kernel serves sequences with different adapters.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{from_soa, to_soa};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: h [tokens, ranks], up [words] u32, segments [segments, 8] u32, scales [sequences, adapters], state [4] or [tokens, 4] u32, and y
/// [tokens, columns] (changed).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRankAdd {
    /// The factor of all sums.
    pub factor: f32,
    /// Rows of y are in SoA (`tensor/soa.rs`).
    pub soa: bool,
}

/// Columns of y, and the ranks that add to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRankSegment {
    /// The first column of y.
    pub first_column: u32,
    /// How many columns.
    pub columns: u32,
    /// The first of h's columns.
    pub first_rank: u32,
    /// Half of the number of ranks.
    pub rank_pairs: u32,
    /// Where its words of `up` begin: for each pair of ranks one for each column, two f16.
    pub first_word: u32,
    /// Which of the scales of a sequence is the adapter's.
    pub adapter: u32,
    /// The factor of its sum besides the scale.
    pub factor: f32,
}

impl LowRankSegment {
    /// Words of a segment.
    pub const WORDS: usize = 8;

    /// As kernels read it.
    pub fn words(&self) -> [u32; Self::WORDS] {
        [
            self.first_column,
            self.columns,
            self.first_rank,
            self.rank_pairs,
            self.first_word,
            self.adapter,
            self.factor.to_bits(),
            0,
        ]
    }
}

impl Op for LowRankAdd {
    on_cpu!();

    fn name(&self) -> &'static str {
        "low_rank_add"
    }

    fn mutates(&self) -> &'static [usize] {
        &[5]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("low_rank_add", inputs, &[f32, u32, u32, f32, u32, f32])?;
        let ((tokens, ranks), (of_y, columns)) = (inputs[0].shape.matrix()?, inputs[5].shape.matrix()?);
        let (_, words) = inputs[2].shape.matrix()?;
        inputs[3].shape.matrix()?;
        Placement::of("low_rank_add", inputs[4], tokens)?;
        let fits = tokens == of_y && words == LowRankSegment::WORDS && ranks.is_multiple_of(2);
        if !fits || (self.soa && !columns.is_multiple_of(BLOCK)) {
            bail!(
                ShapeMismatch,
                "low_rank_add: h {}, segments {} and y {}; wanted one row for each token, an even number of ranks, {} words for each \
                 segment, and in SoA columns of a multiple of {BLOCK}",
                inputs[0].shape,
                inputs[2].shape,
                inputs[5].shape,
                LowRankSegment::WORDS
            );
        }
        fits_u32("low_rank_add", &[tokens, columns])?;
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((tokens, ranks), (_, columns)) = (inputs[0].shape.matrix()?, inputs[5].shape.matrix()?);
        let ((segments, _), (_, adapters)) = (inputs[2].shape.matrix()?, inputs[3].shape.matrix()?);
        let mut defines = Placement::of("low_rank_add", inputs[4], tokens)?.defines();
        if self.soa {
            defines.push(("SOA", Define::Flag));
        }
        let numbers = [tokens * columns, columns, ranks, segments, adapters].map(|number| number as u32);
        Ok(Kernel {
            template: crate::shader!("low_rank_add.wgsl"),
            modules: &[],
            defines,
            params: numbers.into_iter().chain([self.factor.to_bits()]).collect(),
            grid: grid_2d((tokens * columns).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for LowRankAdd {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((tokens, ranks), (_, columns)) = (inputs[0].shape.matrix()?, inputs[5].shape.matrix()?);
        let (_, adapters) = inputs[3].shape.matrix()?;
        let (h, scales) = (inputs[0].to_f32()?, inputs[3].to_f32()?);
        let [up, segments, state] = [1, 2, 4].map(|input| inputs[input].to_u32());
        let (up, segments, state) = (up?, segments?, state?);
        let mut y = inputs[5].to_f32()?;
        for (token, y) in y.chunks_exact_mut(columns).enumerate() {
            let mut row = if self.soa { from_soa(y) } else { y.to_vec() };
            let sequence = if state.len() == 4 { state[3] } else { state[token * 4 + 3] } as usize;
            for segment in segments.chunks_exact(LowRankSegment::WORDS) {
                let [first_column, of_segment, first_rank, pairs, first_word, adapter] =
                    [0, 1, 2, 3, 4, 5].map(|word| segment[word] as usize);
                let scale = f64::from(scales[sequence * adapters + adapter]) * f64::from(f32::from_bits(segment[6]));
                for column in 0..of_segment {
                    let mut sum = 0.0;
                    for pair in 0..pairs {
                        let word = up[first_word + pair * of_segment + column];
                        for (half, bits) in [word as u16, (word >> 16) as u16].into_iter().enumerate() {
                            let rank = token * ranks + first_rank + 2 * pair + half;
                            sum += half::f16::from_bits(bits).to_f64() * f64::from(h[rank]);
                        }
                    }
                    row[first_column + column] += (f64::from(self.factor) * scale * sum) as f32;
                }
            }
            y.copy_from_slice(&if self.soa { to_soa(&row) } else { row });
        }
        let dims = [tokens, columns];
        inputs[5] = HostTensor::f32(&dims, &y);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(71);
    // Tokens, columns, the ranks of three parts of a joined matrix (the second has none), whether each token is a sequence of its own.
    let shapes = [
        (1, 96, [2, 0, 4], false),
        (1, 160, [16, 0, 8], false),
        (3, 96, [6, 0, 2], true),
        (5, 64, [2, 0, 2], true),
        (67, 101, [4, 0, 6], false),
        (4, 1056, [64, 0, 2], false),
    ];
    let mut cases = Vec::new();
    for (index, (tokens, columns, ranks, are_sequences)) in shapes.into_iter().enumerate() {
        for soa in [false, true] {
            if soa && !usize::is_multiple_of(columns, BLOCK) {
                continue;
            }
            let (sequences, adapters) = (tokens.max(2), 3);
            // The last part ends where the columns do, and two adapters add to the first.
            let half = columns / 2;
            let parts = [(0, half, ranks[0], 0), (columns - half / 2, half / 2, ranks[2], 2), (0, half, ranks[2], 1)];
            let (mut segments, mut first_rank, mut first_word) = (Vec::new(), 0, 0);
            for (first_column, columns, ranks, adapter) in parts {
                let segment = LowRankSegment {
                    first_column: first_column as u32,
                    columns: columns as u32,
                    first_rank,
                    rank_pairs: ranks as u32 / 2,
                    first_word,
                    adapter,
                    factor: 0.5 + index as f32,
                };
                segments.extend(segment.words());
                first_rank += ranks as u32;
                first_word += (ranks / 2 * columns) as u32;
            }
            let halves = |rng: &mut Rng| half::f16::from_f32(rng.signed()).to_bits();
            let word = |rng: &mut Rng| u32::from(halves(rng)) | u32::from(halves(rng)) << 16;
            let up: Vec<u32> = (0..first_word).map(|_| word(&mut rng)).collect();
            // A sequence has the second adapter alone, and one has none.
            let mut scales: Vec<f32> = (0..sequences * adapters).map(|_| rng.signed()).collect();
            scales[0] = 0.0;
            scales[adapters..2 * adapters].fill(0.0);
            let row = |token: usize| [7, 0, 0, ((token + 1) % sequences) as u32];
            let state: Vec<u32> =
                if are_sequences { (0..tokens).flat_map(row).collect() } else { row(index % 2).to_vec() };
            let state_dims = if are_sequences { vec![tokens, 4] } else { vec![4] };
            let inputs = vec![
                rng.tensor(&[tokens, first_rank as usize]),
                HostTensor::u32(&[up.len()], &up),
                HostTensor::u32(&[parts.len(), LowRankSegment::WORDS], &segments),
                HostTensor::f32(&[sequences, adapters], &scales),
                HostTensor::u32(&state_dims, &state),
                rng.tensor(&[tokens, columns]),
            ];
            cases.push(Case::new(LowRankAdd { factor: 1.0 + index as f32 * 0.25, soa }, inputs, 1e-5));
        }
    }
    cases
}
