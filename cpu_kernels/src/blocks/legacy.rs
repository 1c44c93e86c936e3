//! Blocks of 32 weights: GGML's Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0.

use bytemuck::{Pod, Zeroable};

use super::{Block, Piece, Visitor};
use crate::half_floats::f16;
use crate::simd::U8x16;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q4_0 {
    d: [u8; 2],
    nibbles: [u8; 16],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q4_1 {
    d: [u8; 2],
    m: [u8; 2],
    nibbles: [u8; 16],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q5_0 {
    d: [u8; 2],
    fifths: [u8; 4],
    nibbles: [u8; 16],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q5_1 {
    d: [u8; 2],
    m: [u8; 2],
    fifths: [u8; 4],
    nibbles: [u8; 16],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q8_0 {
    d: [u8; 2],
    quants: [[u8; 16]; 2],
}

impl Block for Q4_0 {
    const PIECES: usize = 1;
    const ZERO: u8 = 8;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let d = f16(self.d);
        visitor.piece(0, Piece { quants: nibbles(U8x16::load(&self.nibbles)), scales: [d; 2], offset: 0.0 });
    }
}

impl Block for Q4_1 {
    const PIECES: usize = 1;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let quants = nibbles(U8x16::load(&self.nibbles));
        visitor.piece(0, Piece { quants, scales: [f16(self.d); 2], offset: f16(self.m) });
    }
}

impl Block for Q5_0 {
    const PIECES: usize = 1;
    const ZERO: u8 = 16;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let quants = five_bits(&self.nibbles, self.fifths);
        visitor.piece(0, Piece { quants, scales: [f16(self.d); 2], offset: 0.0 });
    }
}

impl Block for Q5_1 {
    const PIECES: usize = 1;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let quants = five_bits(&self.nibbles, self.fifths);
        visitor.piece(0, Piece { quants, scales: [f16(self.d); 2], offset: f16(self.m) });
    }
}

impl Block for Q8_0 {
    const PIECES: usize = 1;
    const SIGNED: bool = true;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let quants = [U8x16::load(&self.quants[0]), U8x16::load(&self.quants[1])];
        visitor.piece(0, Piece { quants, scales: [f16(self.d); 2], offset: 0.0 });
    }
}

/// The low nibbles, then the high ones.
#[inline(always)]
pub(crate) fn nibbles(bytes: U8x16) -> [U8x16; 2] {
    [bytes.and(U8x16::splat(15)), bytes.shr::<4>()]
}

/// Nibbles with their fifth bits, of which weight j has bit j.
#[inline(always)]
fn five_bits(bytes: &[u8; 16], fifths: [u8; 4]) -> [U8x16; 2] {
    let [low, high] = nibbles(U8x16::load(bytes));
    let fifths = U8x16::from_word(u32::from_le_bytes(fifths));
    let own = U8x16::load(&[1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
    let sixteen = U8x16::splat(16);
    let fifth = |spread: U8x16| spread.and(own).equal(own).and(sixteen);
    [low.or(fifth(fifths.spread::<0, 1>())), high.or(fifth(fifths.spread::<2, 3>()))]
}
