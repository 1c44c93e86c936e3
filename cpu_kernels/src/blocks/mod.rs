//! Blocks of GGUF files, seen as pieces of 32 small integers with a scale. Whatever multiplies with weights is a `Visitor` of these pieces, so
//! products × formats compose.

mod k;
mod legacy;

use bytemuck::Pod;

pub(crate) use k::{Q4_K, Q5_K, Q6_K};
pub(crate) use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, nibbles};

use crate::simd::U8x16;

/// Weights of a piece.
pub(crate) const PIECE: usize = 32;

/// 32 weights: `scale · (quant − ZERO) + offset`.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// The quants, in the order of the weights.
    pub(crate) quants: [U8x16; 2],
    /// The scale of each half; the same unless `Block::HALVES`.
    pub(crate) scales: [f32; 2],
    /// 0 unless `Block::OFFSETS`.
    pub(crate) offset: f32,
}

pub(crate) trait Visitor {
    /// Called for each piece of a block, in order.
    fn piece(&mut self, index: usize, piece: Piece);
}

/// A block of a file.
pub(crate) trait Block: Pod {
    /// Pieces in a block.
    const PIECES: usize;
    /// Whether quants are int8; else they are at most 127.
    const SIGNED: bool = false;
    /// Whether each half of a piece has a scale of its own.
    const HALVES: bool = false;
    /// What is subtracted from every quant.
    const ZERO: u8 = 0;
    /// Whether there are offsets.
    const OFFSETS: bool = false;

    fn visit(&self, visitor: &mut impl Visitor);
}
