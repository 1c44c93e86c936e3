//! Activations in the order in which products read them.

use crate::blocks::PIECE;
use crate::format::Mismatch;
use crate::room::reserved;
use crate::simd::F32x4;

/// Vectors of a piece.
pub(super) const VECTORS: usize = PIECE / F32x4::LANES;

/// How the 16 numbers of half a piece stand in four vectors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// One after the other.
    Natural,
    /// Vector i has the numbers i, i + 4, i + 8 and i + 12, divided by 256ⁱ: weights are bytes that stay at their places in words of 32 bits.
    BytesInPlace,
    /// The same numbers, all divided by 2²⁴: weights are bytes in the highest bits of words.
    BytesOnTop,
}

impl Order {
    /// What the numbers of vector `i` are multiplied by. Powers of two: nothing is rounded.
    #[inline(always)]
    pub(super) fn factor(self, i: usize) -> f32 {
        match self {
            Self::Natural => 1.0,
            Self::BytesInPlace => 1.0 / (1u32 << (8 * i)) as f32,
            Self::BytesOnTop => 1.0 / (1u32 << 24) as f32,
        }
    }
}

/// Activations [tokens, columns], with columns padded with zeros to whole pieces.
pub(super) struct Activations {
    /// Of each token and piece its vectors.
    pub(super) vectors: Vec<[F32x4; VECTORS]>,
    /// Of each token and piece the sums of both halves, each divided among the lanes. Empty unless asked for.
    pub(super) sums: Vec<[F32x4; 2]>,
    /// Pieces of a token.
    pub(super) pieces: usize,
}

impl Activations {
    pub(super) fn new(x: &[f32], columns: usize, order: Order, with_sums: bool) -> Result<Self, Mismatch> {
        let pieces = columns.div_ceil(PIECE);
        let count = x.len().checked_div(columns).unwrap_or(0) * pieces;
        let mut vectors = reserved(count)?;
        let mut sums = reserved(if with_sums { count } else { 0 })?;
        for token in x.chunks_exact(columns.max(1)) {
            for piece in token.chunks(PIECE) {
                let piece = padded(piece);
                vectors.push(ordered(&piece, order));
                if with_sums {
                    let v: [F32x4; VECTORS] = natural(&piece);
                    sums.push([0, 4].map(|at| v[at].add(v[at + 1]).add(v[at + 2].add(v[at + 3]))));
                }
            }
        }
        Ok(Self { vectors, sums, pieces })
    }
}

/// A piece with zeros after its end.
pub(super) fn padded<T: Copy + Default>(piece: &[T]) -> [T; PIECE] {
    match piece.first_chunk() {
        Some(whole) => *whole,
        None => {
            let mut all = [T::default(); PIECE];
            all[..piece.len()].copy_from_slice(piece);
            all
        }
    }
}

/// The vectors of a piece, one after the other.
#[inline(always)]
pub(super) fn natural(piece: &[f32; PIECE]) -> [F32x4; VECTORS] {
    let vectors: &[[f32; 4]; VECTORS] = bytemuck::cast_ref(piece);
    vectors.map(|four| F32x4::load(&four))
}

#[inline(always)]
fn ordered(piece: &[f32; PIECE], order: Order) -> [F32x4; VECTORS] {
    if order == Order::Natural {
        return natural(piece);
    }
    std::array::from_fn(|vector| {
        let (half, i) = (vector / 4, vector % 4);
        let factor = order.factor(i);
        F32x4::load(&std::array::from_fn(|lane| piece[half * 16 + lane * 4 + i] * factor))
    })
}

/// A piece of vectors in an order, as numbers one after the other: the reverse of what activations go through, for weights.
pub(super) fn restored(vectors: &[F32x4; VECTORS], order: Order) -> [f32; PIECE] {
    let lanes = vectors.map(F32x4::lanes);
    std::array::from_fn(|j| match order {
        Order::Natural => lanes[j / 4][j % 4],
        _ => lanes[j / 16 * 4 + j % 4][j % 16 / 4] * order.factor(j % 4),
    })
}
