//! Dot products of four columns, in vectors that have a row in each lane. With relaxed SIMD bytes are multiplied; without it they become numbers
//! of 16 bits first. All ways give the same sums.

use std::marker::PhantomData;

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
    /// Sums of few products.
    type Few: Copy;

    /// What is added to int8 weights, so that `signed` has no sign to deal with.
    const ADDED: i32 = 0;

    /// Where sums of few products begin, which are added to `sums`.
    fn begin(sums: I32x4) -> Self::Few;

    /// Adds the products of `unsigned` weights with a quad: at most 8 quads of weights below 16, 4 below 32 or 2 below 64.
    fn add_few(few: Self::Few, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> Self::Few;

    /// The sums, which began with `sums`.
    fn end(sums: I32x4, few: Self::Few) -> I32x4;

    /// Of int8, which are not −128.
    fn quads(quants: [U8x16; 2]) -> Self::Quads;

    /// Of bytes whose nibbles are quants: those of the low ones and those of the high ones.
    fn nibbles(bytes: U8x16) -> [Self::Weights; 2];

    /// Quants from 0 to 127.
    fn unsigned(bytes: U8x16) -> Self::Weights;

    /// int8.
    fn signed(bytes: U8x16) -> Self::Weights;

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
    type Few = I32x4;

    #[inline(always)]
    fn begin(sums: I32x4) -> Self::Few {
        sums
    }

    #[inline(always)]
    fn end(_: I32x4, few: Self::Few) -> I32x4 {
        few
    }

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
    fn add_few(sums: Self::Few, [even, odd]: Self::Weights, quads: &Self::Quads, quad: usize) -> Self::Few {
        let [x_even, x_odd] = [quads[0][quad], quads[1][quad]].map(|pair| U8x16::from_word(pair).halves());
        sums.add(even.dot(x_even)).add(odd.dot(x_odd))
    }

    #[inline(always)]
    fn add_signed(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4 {
        Self::add_few(sums, weights, quads, quad)
    }
}

/// Activations as bytes, and as magnitudes and signs: what multiplies int8 must not be negative.
#[derive(Clone, Copy)]
pub struct ByteQuads {
    quants: [u32; QUADS],
    magnitudes: [u32; QUADS],
    /// Bytes are 255 where activations are negative.
    signs: [u32; QUADS],
}

impl ByteQuads {
    #[inline(always)]
    fn new(quants: [U8x16; 2]) -> Self {
        Self {
            quants: cast(quants),
            magnitudes: cast(quants.map(U8x16::magnitudes)),
            signs: cast(quants.map(U8x16::signs)),
        }
    }

    #[inline(always)]
    fn quants(&self, quad: usize) -> U8x16 {
        U8x16::from_word(self.quants[quad])
    }

    /// int8 weights with the signs of a quad, and its magnitudes. Of −128 only 127 remains, which no quantiser writes.
    #[inline(always)]
    fn signed(&self, weights: U8x16, quad: usize) -> [U8x16; 2] {
        let signs = U8x16::from_word(self.signs[quad]);
        [weights.xor(signs).sub_saturating(signs), U8x16::from_word(self.magnitudes[quad])]
    }
}

/// The nibbles of bytes.
#[inline(always)]
fn nibbles_of_bytes(bytes: U8x16) -> [U8x16; 2] {
    let low = U8x16::splat(15);
    // Bytes have no shift of their own on most processors.
    [bytes.and(low), bytes.shr_in_halves::<4>().and(low)]
}

/// What the instruction that sums four products takes bytes above 127 for in its second operand: the specification of relaxed SIMD leaves that to
/// the processor. It matters to weights that are int8.
pub trait SecondOperand {
    /// What is added to int8 weights.
    const ADDED: i32 = 0;

    /// int8 weights as they are multiplied.
    fn weights(bytes: U8x16) -> U8x16 {
        bytes
    }

    /// Adds the products of a quad with these weights.
    fn add(sums: I32x4, weights: U8x16, quads: &ByteQuads, quad: usize) -> I32x4;
}

/// Unknown: weights take the signs of the activations.
pub struct Unknown;

impl SecondOperand for Unknown {
    #[inline(always)]
    fn add(sums: I32x4, weights: U8x16, quads: &ByteQuads, quad: usize) -> I32x4 {
        let [weights, magnitudes] = quads.signed(weights, quad);
        sums.add_dot_bytes(weights, magnitudes)
    }
}

/// Numbers from 0 to 255 (x86's `vpdpbusd`).
pub struct Unsigned;

impl SecondOperand for Unsigned {
    const ADDED: i32 = 128;

    #[inline(always)]
    fn weights(bytes: U8x16) -> U8x16 {
        bytes.xor(U8x16::splat(128))
    }

    #[inline(always)]
    fn add(sums: I32x4, weights: U8x16, quads: &ByteQuads, quad: usize) -> I32x4 {
        sums.add_dot_bytes(quads.quants(quad), weights)
    }
}

/// int8 (ARM's `sdot`).
pub struct Int8;

impl SecondOperand for Int8 {
    #[inline(always)]
    fn add(sums: I32x4, weights: U8x16, quads: &ByteQuads, quad: usize) -> I32x4 {
        sums.add_dot_int8(quads.quants(quad), weights)
    }
}

/// Bytes by one instruction, which sums four products: processors with such an instruction (ARM's `sdot`, x86's `vpdpbusd`).
pub struct Bytes<S = Unknown>(PhantomData<S>);

impl<S: SecondOperand> Dots for Bytes<S> {
    type Quads = ByteQuads;
    type Weights = U8x16;
    type Few = I32x4;

    const ADDED: i32 = S::ADDED;

    #[inline(always)]
    fn begin(sums: I32x4) -> Self::Few {
        sums
    }

    #[inline(always)]
    fn end(_: I32x4, few: Self::Few) -> I32x4 {
        few
    }

    #[inline(always)]
    fn quads(quants: [U8x16; 2]) -> Self::Quads {
        ByteQuads::new(quants)
    }

    #[inline(always)]
    fn nibbles(bytes: U8x16) -> [Self::Weights; 2] {
        nibbles_of_bytes(bytes)
    }

    #[inline(always)]
    fn unsigned(bytes: U8x16) -> Self::Weights {
        bytes
    }

    #[inline(always)]
    fn signed(bytes: U8x16) -> Self::Weights {
        S::weights(bytes)
    }

    #[inline(always)]
    fn add_few(sums: Self::Few, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> Self::Few {
        sums.add_dot_bytes(quads.quants(quad), weights)
    }

    #[inline(always)]
    fn add_signed(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4 {
        S::add(sums, weights, quads, quad)
    }
}

/// Bytes by an instruction that sums two products (x86's `pmaddubsw`). Where there is no other, the sum of four takes five instructions: so sums of
/// 16 bits are added up as long as they fit.
pub struct Pairs;

impl Dots for Pairs {
    type Quads = ByteQuads;
    type Weights = U8x16;
    /// 8 · 2 · 15 · 127, 4 · 2 · 31 · 127 and 2 · 2 · 63 · 127 are below 2¹⁵.
    type Few = I16x8;

    #[inline(always)]
    fn begin(_: I32x4) -> Self::Few {
        I16x8::splat(0)
    }

    #[inline(always)]
    fn end(sums: I32x4, few: Self::Few) -> I32x4 {
        sums.add(few.sums_of_neighbours())
    }

    #[inline(always)]
    fn quads(quants: [U8x16; 2]) -> Self::Quads {
        ByteQuads::new(quants)
    }

    #[inline(always)]
    fn nibbles(bytes: U8x16) -> [Self::Weights; 2] {
        nibbles_of_bytes(bytes)
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
    fn add_few(few: Self::Few, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> Self::Few {
        few.add(I16x8::dot_bytes(quads.quants(quad), weights))
    }

    #[inline(always)]
    fn add_signed(sums: I32x4, weights: Self::Weights, quads: &Self::Quads, quad: usize) -> I32x4 {
        let [weights, magnitudes] = quads.signed(weights, quad);
        sums.add(I16x8::dot_bytes(weights, magnitudes).sums_of_neighbours())
    }
}

/// What the instruction of `Bytes` is here.
#[cfg(target_feature = "relaxed-simd")]
pub(super) enum Instruction {
    /// Made of that of `Pairs`.
    OfPairs,
    /// Its second operand is unsigned.
    Unsigned,
    /// Its second operand is int8.
    Int8,
    /// Something else.
    Unknown,
}

/// What the instruction gives for numbers above 127 tells: where it is made of sums of two, these end at 2¹⁵ − 1.
#[cfg(target_feature = "relaxed-simd")]
pub(super) fn instruction() -> Instruction {
    const OF_PAIRS: i32 = 2 * i16::MAX as i32;
    const UNSIGNED: i32 = 4 * 127 * 255;
    const INT8: i32 = -4 * 127;
    let [signed, above] = std::hint::black_box([127, 255]).map(U8x16::splat);
    match I32x4::splat(0).add_dot_bytes(signed, above).lanes()[0] {
        OF_PAIRS => Instruction::OfPairs,
        UNSIGNED => Instruction::Unsigned,
        INT8 => Instruction::Int8,
        _ => Instruction::Unknown,
    }
}
