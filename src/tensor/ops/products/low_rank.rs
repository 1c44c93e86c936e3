//! What an adapter of low rank adds to a product (LoRA, Hu et al. 2021, https://arxiv.org/abs/2106.09685): y += scale · B·(A·x). `low_rank_down`
//! gives h = scale · A·x, and kernels of one token add B·h to their rows (`wgsl/low_rank.wgsl`); `low_rank_add` does so after others.
//!
//! The words of B are one tensor u32: the number of segments, then `LowRankSegment::WORDS` words for each segment, then, for each pair of
//! ranks of a segment, two f16 for each of its rows: so neighbouring rows lie side by side.

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::ops::RowNorm;
use crate::tensor::{CpuTensors, DType, Desc, HostTensor, Rng};

/// Rows of a matrix, and the ranks that add to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRankSegment {
    /// The first of the matrix's rows, which is a column of the product.
    pub first_row: u32,
    /// How many rows.
    pub rows: u32,
    /// The first of h's columns.
    pub first_rank: u32,
    /// Half of the number of ranks.
    pub rank_pairs: u32,
    /// Where its words begin, counted from the first word after all segments.
    pub first_word: u32,
}

impl LowRankSegment {
    /// Words of a segment.
    pub const WORDS: usize = 5;

    /// The words of B as kernels read them: of `segments`, and the pairs of f16 of each.
    pub fn words(segments: &[Self], pairs: &[u32]) -> Vec<u32> {
        let before = (1 + segments.len() * Self::WORDS) as u32;
        let header = segments.iter().flat_map(|segment| {
            let Self { first_row, rows, first_rank, rank_pairs, first_word } = *segment;
            [first_row, rows, first_rank, rank_pairs, before + first_word]
        });
        std::iter::once(segments.len() as u32).chain(header).chain(pairs.iter().copied()).collect()
    }

    /// The segments of such words. Their `first_word` is counted from the first word of all.
    pub(in crate::tensor::ops) fn all(words: &[u32]) -> Vec<Self> {
        let segments = words.first().copied().unwrap_or(0) as usize;
        let of_segment = |words: &[u32]| Self {
            first_row: words[0],
            rows: words[1],
            first_rank: words[2],
            rank_pairs: words[3],
            first_word: words[4],
        };
        words.get(1..).unwrap_or(&[]).chunks_exact(Self::WORDS).take(segments).map(of_segment).collect()
    }
}

/// Gives `add` each row that B·h adds to, counted from the first of the matrix, and a part of its sum, in the order of ranks.
pub(in crate::tensor::ops) fn for_each_part(h: &[f32], words: &[u32], mut add: impl FnMut(usize, f32)) {
    for segment in LowRankSegment::all(words) {
        let h = h[segment.first_rank as usize..].chunks_exact(2).take(segment.rank_pairs as usize);
        for (h, words) in h.zip(words[segment.first_word as usize..].chunks_exact(segment.rows.max(1) as usize)) {
            for (row, word) in (segment.first_row as usize..).zip(words) {
                let [first, second] = [*word as u16, (word >> 16) as u16].map(half::f16::from_bits).map(f32::from);
                add(row, first * h[0] + second * h[1]);
            }
        }
    }
}

/// Two further inputs of a kernel of one token, if an adapter adds to its product: h [1, ranks] of `low_rank_down`, and the words of B.
pub(in crate::tensor::ops) fn inputs(is_there: bool) -> usize {
    if is_there { 2 } else { 0 }
}

/// Whether the two inputs from `first` on fit, if they are there.
pub(in crate::tensor::ops) fn fit(is_there: bool, inputs: &[Desc], first: usize) -> bool {
    let fits = |h: &Desc, words: &Desc| {
        (h.dtype, words.dtype) == (DType::F32, DType::U32)
            && matches!(*h.shape.dims(), [1, ranks] if ranks.is_multiple_of(2))
    };
    !is_there || matches!(inputs.get(first..first + 2), Some([h, words]) if fits(h, words))
}

/// The defines of `wgsl/low_rank.wgsl`, if the inputs are there: their bindings are `first` and the next.
pub(in crate::tensor::ops) fn defines(is_there: bool, first: u32) -> Vec<(&'static str, Define)> {
    let defines = [
        ("LOW_RANK", Define::Flag),
        ("LOW_RANK_BINDING", Define::U32(first)),
        ("LOW_RANK_WORDS_BINDING", Define::U32(first + 1)),
    ];
    if is_there { defines.to_vec() } else { vec![] }
}

/// For references: products += factor · B·h. `first` is the first of the two inputs.
pub(in crate::tensor::ops) fn add_reference(
    is_there: bool,
    inputs: &[HostTensor],
    first: usize,
    factor: f64,
    products: &mut [f64],
) -> Result<()> {
    if is_there {
        let (h, words) = (inputs[first].to_f32()?, inputs[first + 1].to_u32()?);
        for_each_part(&h, &words, |row, part| products[row] += factor * f64::from(part));
    }
    Ok(())
}

/// The same where the device is the CPU.
pub(in crate::tensor::ops) fn add_on_cpu(
    is_there: bool,
    tensors: &CpuTensors<'_>,
    first: usize,
    factor: f32,
    products: &mut [f32],
) -> Result<()> {
    if is_there {
        let (h, words) = (tensors.input(first)?.f32s()?, tensors.input(first + 1)?.u32s()?);
        for_each_part(h, words, |row, part| products[row] += factor * part);
    }
    Ok(())
}

/// The same after a norm of the first input, which divides the product as a whole (`LowRankInput::Normed`).
pub(in crate::tensor::ops) fn add_normed_on_cpu(
    is_there: bool,
    norm: RowNorm,
    tensors: &CpuTensors<'_>,
    first: usize,
    products: &mut [f32],
) -> Result<()> {
    if !is_there {
        return Ok(());
    }
    let divisor = norm.divisor(tensors.input(0)?.f32s()?);
    add_on_cpu(is_there, tensors, first, 1.0 / divisor as f32, products)
}

/// For cases: segments of a matrix of this many rows, and the pairs of f16 of all. Two add to the same rows, and rows are left out.
pub(in crate::tensor::ops) fn random_segments(
    rng: &mut Rng,
    rows: usize,
    ranks: [usize; 3],
) -> (Vec<LowRankSegment>, Vec<u32>) {
    let half = (rows / 2).max(1);
    let parts = [(0, half, ranks[0]), (rows - half.div_ceil(2), half.div_ceil(2), ranks[1]), (0, half, ranks[2])];
    let (mut segments, mut first_rank, mut first_word) = (Vec::new(), 0, 0);
    for (first_row, rows, ranks) in parts {
        segments.push(LowRankSegment {
            first_row: first_row as u32,
            rows: rows as u32,
            first_rank,
            rank_pairs: ranks as u32 / 2,
            first_word,
        });
        first_rank += ranks as u32;
        first_word += (ranks / 2 * rows) as u32;
    }
    let half = |rng: &mut Rng| u32::from(half::f16::from_f32(rng.signed()).to_bits());
    let pairs = (0..first_word).map(|_| half(rng) | half(rng) << 16).collect();
    (segments, pairs)
}

/// For cases: the two further inputs of a kernel whose matrix has this many rows, if they are there.
pub(in crate::tensor::ops) fn random_inputs(is_there: bool, rng: &mut Rng, rows: usize) -> Vec<HostTensor> {
    let mut inputs = Vec::new();
    if is_there {
        // Ranks in the hundreds where there are many rows.
        let ranks = if rows > 1000 { [512, 0, 258] } else { [[16, 6, 2], [4, 0, 40], [2, 2, 66]][rows % 3] };
        let (segments, pairs) = random_segments(rng, rows, ranks);
        let words = LowRankSegment::words(&segments, &pairs);
        inputs.push(rng.tensor(&[1, ranks.iter().sum()]));
        inputs.push(HostTensor::u32(&[words.len()], &words));
    }
    inputs
}
