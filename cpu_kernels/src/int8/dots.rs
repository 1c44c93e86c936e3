//! Dot products of four columns, in vectors that have a row in each lane. With relaxed SIMD bytes are multiplied; without it they become numbers
//! of 16 bits first. Both give the same sums.

use bytemuck::cast;

use crate::blocks::PIECE;
use crate::simd::{I16x8, I32x4, U8x16};

/// Groups of four columns in a piece.
pub(super) const QUADS: usize = PIECE / 4;

/// How products are summed.
pub trait Dots {
    /// Activations of a piece, by quads.
    type Quads: Copy;
    /// Weights of four rows and four columns.
    type Weights: Copy;

    /// Of int8, which are not −128.
    fn quads(quants: [U8x16; 2]) -> Self::Quads;

    /// Of bytes whose nibbles are quants: those of the low ones and those of the high ones.
    fn nibbles(bytes: U8x16) -> [Self::Weights; 2];

    /// Quants from 0 to 127.
    fn unsigned(bytes: U8x16) -> Self::Weights;

    /// int8.
    fn signed(bytes: U8x16) -> Self::Weights;

    /// Adds the products of `unsigned` weights with a quad.
    fn add(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4;

    /// Adds the products of `signed` weights with a quad.
    fn add_signed(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4;
}

/// Numbers of 16 bits.
pub struct Halves;

impl Dots for Halves {
    /// The even columns of each quad, and the odd ones.
    type Quads = [[u32; QUADS]; 2];
    /// The even columns of all rows, and the odd ones.
    type Weights = [I16x8; 2];

    #[inline(always)]
    fn quads(quants: [U8x16; 2]) -> Self::Quads {
        let [a, b] = quants.map(Self::signed);
        [cast([a[0], b[0]]), cast([a[1], b[1]])]
    }

    #[inline(always)]
    fn nibbles(bytes: U8x16) -> [Self::Weights; 2] {
        let low = U8x16::splat_halves(15);
        let even = [bytes.and(low).halves(), bytes.shr_in_halves::<8>().and(low).halves()];
        let odd = [bytes.shr_in_halves::<4>().and(low).halves(), bytes.shr_in_halves::<12>().halves()];
        [even, odd]
    }

    #[inline(always)]
    fn unsigned(bytes: U8x16) -> Self::Weights {
        [bytes.and(U8x16::splat_halves(255)).halves(), bytes.shr_in_halves::<8>().halves()]
    }

    #[inline(always)]
    fn signed(bytes: U8x16) -> Self::Weights {
        [bytes.shl_in_halves::<8>().halves().shr_s::<8>(), bytes.halves().shr_s::<8>()]
    }

    #[inline(always)]
    fn add(sums: I32x4, [even, odd]: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4 {
        let [x_even, x_odd] = [quads[0][quad], quads[1][quad]].map(|pair| U8x16::from_word(pair).halves());
        sums.add(even.dot(x_even)).add(odd.dot(x_odd))
    }

    #[inline(always)]
    fn add_signed(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4 {
        Self::add(sums, weights, quads, quad)
    }
}

/// Bytes, as they are.
pub struct Bytes;

/// Activations as bytes, and as magnitudes and signs: what multiplies int8 must not be negative.
#[derive(Clone, Copy)]
pub struct ByteQuads {
    quants: [u32; QUADS],
    magnitudes: [u32; QUADS],
    /// Bytes are 255 where activations are negative.
    signs: [u32; QUADS],
}

impl Dots for Bytes {
    type Quads = ByteQuads;
    type Weights = U8x16;

    #[inline(always)]
    fn quads(quants: [U8x16; 2]) -> Self::Quads {
        ByteQuads {
            quants: cast(quants),
            magnitudes: cast(quants.map(U8x16::magnitudes)),
            signs: cast(quants.map(U8x16::signs)),
        }
    }

    #[inline(always)]
    fn nibbles(bytes: U8x16) -> [Self::Weights; 2] {
        [bytes.and(U8x16::splat(15)), bytes.shr::<4>()]
    }

    #[inline(always)]
    fn unsigned(bytes: U8x16) -> Self::Weights {
        bytes
    }

    #[inline(always)]
    fn signed(bytes: U8x16) -> Self::Weights {
        bytes
    }

    #[inline(always)]
    fn add(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4 {
        sums.add_dot_bytes(U8x16::from_word(quads.quants[quad]), weights)
    }

    #[inline(always)]
    fn add_signed(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4 {
        let signs = U8x16::from_word(quads.signs[quad]);
        // The weights with the signs of the activations. Of −128 only 127 remains, which no quantiser writes.
        let weights = weights.xor(signs).sub_saturating(signs);
        sums.add_dot_bytes(weights, U8x16::from_word(quads.magnitudes[quad]))
    }
}
