//! Superblocks of 256 weights: GGML's Q4_K, Q5_K and Q6_K.

use bytemuck::{Pod, Zeroable};

use super::legacy::nibbles;
use super::{Block, Piece, Visitor};
use crate::half_floats::f16;
use crate::simd::{F32x4, I32x4, U8x16};

#[allow(non_camel_case_types, reason = "the name of the type in files")]
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q4_K {
    header: Header,
    nibbles: [[[u8; 16]; 2]; 4],
}

#[allow(non_camel_case_types, reason = "the name of the type in files")]
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q5_K {
    header: Header,
    fifths: [[u8; 16]; 2],
    nibbles: [[[u8; 16]; 2]; 4],
}

#[allow(non_camel_case_types, reason = "the name of the type in files")]
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Q6_K {
    low: [[[u8; 16]; 4]; 2],
    high: [[[u8; 16]; 2]; 2],
    scales: [u8; 16],
    d: [u8; 2],
}

/// The factors of scales and minima, and eight of each with six bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    d: [u8; 2],
    dmin: [u8; 2],
    packed: [u8; 12],
}

impl Header {
    /// Scale and offset of each piece: those of piece p are in list p % 4, at p / 4 and p / 4 + 2.
    #[inline(always)]
    fn scales(&self) -> [[f32; 4]; 4] {
        let [a, b, c] = [0, 4, 8].map(|at| {
            u32::from_le_bytes([self.packed[at], self.packed[at + 1], self.packed[at + 2], self.packed[at + 3]])
        });
        // Four bytes at once. Those of the first four pieces are the low six bits of `a` and `b`; those of the others are in four bits of `c`
        // and the two remaining bits of `a` and `b`.
        let scales = [a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | (a >> 2 & 0x3030_3030)];
        let minima = [b & 0x3f3f_3f3f, (c >> 4 & 0x0f0f_0f0f) | (b >> 2 & 0x3030_3030)];
        let words = I32x4::new([scales[0], scales[1], minima[0], minima[1]].map(|word| word as i32));
        let (d, dmin) = (f16(self.d), -f16(self.dmin));
        let factors = F32x4::load(&[d, d, dmin, dmin]);
        let byte = I32x4::splat(63);
        [words.and(byte), words.shr_u::<8>().and(byte), words.shr_u::<16>().and(byte), words.shr_u::<24>()]
            .map(|bytes| bytes.to_f32().mul(factors).lanes())
    }
}

impl Block for Q4_K {
    const PIECES: usize = 8;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let scales = self.header.scales();
        for (pair, bytes) in self.nibbles.iter().enumerate() {
            let [first, last] = bytes.map(|half| nibbles(U8x16::load(&half)));
            for (nibble, quants) in [[first[0], last[0]], [first[1], last[1]]].into_iter().enumerate() {
                let index = pair * 2 + nibble;
                let (scale, offset) = (scales[index % 4][index / 4], scales[index % 4][index / 4 + 2]);
                visitor.piece(index, Piece { quants, scales: [scale; 2], offset });
            }
        }
    }
}

impl Block for Q5_K {
    const PIECES: usize = 8;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let scales = self.header.scales();
        // Each piece takes the lowest bit that is left.
        let mut fifths = self.fifths.map(|half| U8x16::load(&half));
        let (one, sixteen) = (U8x16::splat(1), U8x16::splat(16));
        for (pair, bytes) in self.nibbles.iter().enumerate() {
            let [first, last] = bytes.map(|half| nibbles(U8x16::load(&half)));
            for (nibble, lower) in [[first[0], last[0]], [first[1], last[1]]].into_iter().enumerate() {
                let index = pair * 2 + nibble;
                let (scale, offset) = (scales[index % 4][index / 4], scales[index % 4][index / 4 + 2]);
                let fifth = |half: U8x16| half.and(one).equal(one).and(sixteen);
                let quants = [lower[0].or(fifth(fifths[0])), lower[1].or(fifth(fifths[1]))];
                fifths = fifths.map(U8x16::shr::<1>);
                visitor.piece(index, Piece { quants, scales: [scale; 2], offset });
            }
        }
    }
}

impl Block for Q6_K {
    const PIECES: usize = 8;
    const HALVES: bool = true;
    const ZERO: u8 = 32;

    #[inline(always)]
    fn visit(&self, visitor: &mut impl Visitor) {
        let d = F32x4::splat(f16(self.d));
        // Scale s is in list s % 4, at s / 4.
        let words = U8x16::load(&self.scales).words();
        let scales = [words.shl::<24>(), words.shl::<16>(), words.shl::<8>(), words]
            .map(|bytes| bytes.shr_s::<24>().to_f32().mul(d).lanes());
        let scale = |piece: usize| [scales[piece % 2 * 2][piece / 2], scales[piece % 2 * 2 + 1][piece / 2]];
        let (three, fifteen) = (U8x16::splat(0x30), U8x16::splat(15));
        for (part, (low, high)) in self.low.iter().zip(&self.high).enumerate() {
            let low = low.map(|bytes| U8x16::load(&bytes));
            let high = high.map(|bytes| U8x16::load(&bytes));
            // Bits 4 and 5 of four pieces. Others go astray to the neighbour in a half and are masked.
            let upper = [
                high.map(|bytes| bytes.shl_in_halves::<4>().and(three)),
                high.map(|bytes| bytes.shl_in_halves::<2>().and(three)),
                high.map(|bytes| bytes.and(three)),
                high.map(|bytes| bytes.shr_in_halves::<2>().and(three)),
            ];
            for (index, upper) in upper.into_iter().enumerate() {
                let at = index % 2 * 2;
                let lower = |bytes: U8x16| if index < 2 { bytes.and(fifteen) } else { bytes.shr::<4>() };
                let quants = [lower(low[at]).or(upper[0]), lower(low[at + 1]).or(upper[1])];
                visitor.piece(part * 4 + index, Piece { quants, scales: scale(part * 4 + index), offset: 0.0 });
            }
        }
    }
}
