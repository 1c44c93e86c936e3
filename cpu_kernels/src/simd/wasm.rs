//! The vectors of SIMD128 and, where the build has it, of relaxed SIMD.

use core::arch::wasm32::*;

use bytemuck::{Pod, Zeroable, cast};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct F32x4(v128);

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct I32x4(v128);

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct I16x8(v128);

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct U8x16(v128);

impl F32x4 {
    #[inline(always)]
    pub(crate) fn splat(x: f32) -> Self {
        Self(f32x4_splat(x))
    }

    #[inline(always)]
    pub(crate) fn load(from: &[f32; 4]) -> Self {
        Self(cast(*from))
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [f32; 4] {
        cast(self.0)
    }

    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self(f32x4_add(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn sub(self, other: Self) -> Self {
        Self(f32x4_sub(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn mul(self, other: Self) -> Self {
        Self(f32x4_mul(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn div(self, other: Self) -> Self {
        Self(f32x4_div(self.0, other.0))
    }

    /// `self · factor + summand`, perhaps rounded once.
    #[inline(always)]
    pub(crate) fn mul_add(self, factor: Self, summand: Self) -> Self {
        #[cfg(target_feature = "relaxed-simd")]
        return Self(f32x4_relaxed_madd(self.0, factor.0, summand.0));
        #[cfg(not(target_feature = "relaxed-simd"))]
        self.mul(factor).add(summand)
    }

    /// The sum of the lanes.
    #[inline(always)]
    pub(crate) fn sum(self) -> f32 {
        let pairs = f32x4_add(self.0, i32x4_shuffle::<2, 3, 0, 1>(self.0, self.0));
        f32x4_extract_lane::<0>(pairs) + f32x4_extract_lane::<1>(pairs)
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> I32x4 {
        I32x4(self.0)
    }

    /// The largest lane. What is no number may be left out.
    #[inline(always)]
    pub(crate) fn largest(self) -> f32 {
        let pairs = self.at_least(Self(i32x4_shuffle::<2, 3, 0, 1>(self.0, self.0)));
        f32x4_extract_lane::<0>(pairs.at_least(Self(i32x4_shuffle::<1, 0, 3, 2>(pairs.0, pairs.0))).0)
    }

    #[inline(always)]
    pub(crate) fn abs(self) -> Self {
        Self(f32x4_abs(self.0))
    }

    /// Of two lanes the larger, in one instruction: what is no number stays one in `self` alone.
    #[inline(always)]
    pub(crate) fn at_least(self, other: Self) -> Self {
        Self(f32x4_pmax(self.0, other.0))
    }

    /// Of two lanes the smaller, in one instruction: what is no number stays one in `self` alone.
    #[inline(always)]
    pub(crate) fn at_most(self, other: Self) -> Self {
        Self(f32x4_pmin(self.0, other.0))
    }

    /// All ones where a lane is greater; zeros where one of both is no number.
    #[inline(always)]
    pub(crate) fn greater(self, other: Self) -> I32x4 {
        I32x4(f32x4_gt(self.0, other.0))
    }

    /// As whole numbers from 0 to 2³² − 1, without what is behind the point.
    #[inline(always)]
    pub(crate) fn to_u32(self) -> I32x4 {
        I32x4(u32x4_trunc_sat_f32x4(self.0))
    }

    /// The sums of the lanes of four vectors.
    #[inline(always)]
    pub(crate) fn sums([a, b, c, d]: [Self; 4]) -> Self {
        let pairs = |a: v128, b: v128| f32x4_add(i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<2, 6, 3, 7>(a, b));
        let (ab, cd) = (pairs(a.0, b.0), pairs(c.0, d.0));
        Self(f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(ab, cd), i32x4_shuffle::<2, 3, 6, 7>(ab, cd)))
    }

    /// From little-endian bytes.
    #[inline(always)]
    pub(crate) fn from_bytes(from: &[u8; 16]) -> Self {
        U8x16::load(from).words().floats()
    }
}

impl I32x4 {
    #[inline(always)]
    pub(crate) fn splat(x: i32) -> Self {
        Self(i32x4_splat(x))
    }

    #[inline(always)]
    pub(crate) fn new(lanes: [i32; 4]) -> Self {
        Self(cast(lanes))
    }

    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(v128_and(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(v128_or(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self(i32x4_add(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn sub(self, other: Self) -> Self {
        Self(i32x4_sub(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn mul(self, other: Self) -> Self {
        Self(i32x4_mul(self.0, other.0))
    }

    /// The upper halves of the products of unsigned numbers.
    #[inline(always)]
    pub(crate) fn mul_high_u(self, other: Self) -> Self {
        let [low, high] = [u64x2_extmul_low_u32x4(self.0, other.0), u64x2_extmul_high_u32x4(self.0, other.0)];
        Self(i32x4_shuffle::<1, 3, 5, 7>(low, high))
    }

    #[inline(always)]
    pub(crate) fn xor(self, other: Self) -> Self {
        Self(v128_xor(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn shl<const BITS: u32>(self) -> Self {
        Self(i32x4_shl(self.0, BITS))
    }

    /// Shifts in zeros.
    #[inline(always)]
    pub(crate) fn shr_u<const BITS: u32>(self) -> Self {
        Self(u32x4_shr(self.0, BITS))
    }

    /// Shifts in the sign.
    #[inline(always)]
    pub(crate) fn shr_s<const BITS: u32>(self) -> Self {
        Self(i32x4_shr(self.0, BITS))
    }

    /// All ones where a lane is less.
    #[inline(always)]
    pub(crate) fn less(self, other: Self) -> Self {
        Self(i32x4_lt(self.0, other.0))
    }

    /// The bits of `a` where those of `self` are ones, and those of `b` elsewhere.
    #[inline(always)]
    pub(crate) fn select(self, a: Self, b: Self) -> Self {
        Self(v128_bitselect(a.0, b.0, self.0))
    }

    /// Of two lanes the larger.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self(i32x4_max(self.0, other.0))
    }

    /// The largest lane.
    #[inline(always)]
    pub(crate) fn largest(self) -> i32 {
        let pairs = self.max(Self(i32x4_shuffle::<2, 3, 0, 1>(self.0, self.0)));
        i32x4_extract_lane::<0>(pairs.max(Self(i32x4_shuffle::<1, 0, 3, 2>(pairs.0, pairs.0))).0)
    }

    /// Eight numbers of 16 bits, or the nearest to them: those of `self`, then those of `other`.
    #[inline(always)]
    pub(crate) fn narrow(self, other: Self) -> I16x8 {
        I16x8(i16x8_narrow_i32x4(self.0, other.0))
    }

    /// Of two lanes the smaller.
    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        Self(i32x4_min(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn to_f32(self) -> F32x4 {
        F32x4(f32x4_convert_i32x4(self.0))
    }

    /// Of unsigned numbers.
    #[inline(always)]
    pub(crate) fn to_f32_u(self) -> F32x4 {
        F32x4(f32x4_convert_u32x4(self.0))
    }

    #[inline(always)]
    pub(crate) fn floats(self) -> F32x4 {
        F32x4(self.0)
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [i32; 4] {
        cast(self.0)
    }

    /// Adds to each lane the products of four int8 and four int8. With relaxed SIMD it is for processors that take the second ones for that.
    #[inline(always)]
    pub(crate) fn add_dot_int8(self, a: U8x16, b: U8x16) -> Self {
        #[cfg(target_feature = "relaxed-simd")]
        return self.add_dot_bytes(a, b);
        #[cfg(not(target_feature = "relaxed-simd"))]
        {
            let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(a.0), i16x8_extend_low_i8x16(b.0));
            let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(a.0), i16x8_extend_high_i8x16(b.0));
            let even = i32x4_shuffle::<0, 2, 4, 6>(low, high);
            let odd = i32x4_shuffle::<1, 3, 5, 7>(low, high);
            self.add(Self(even)).add(Self(odd))
        }
    }

    /// Adds to each lane the products of four bytes: int8 and numbers from 0 to 127.
    #[inline(always)]
    pub(crate) fn add_dot_bytes(self, signed: U8x16, unsigned: U8x16) -> Self {
        #[cfg(target_feature = "relaxed-simd")]
        return Self(i32x4_relaxed_dot_i8x16_i7x16_add(signed.0, unsigned.0, self.0));
        #[cfg(not(target_feature = "relaxed-simd"))]
        {
            let low = i16x8_extmul_low_i8x16(signed.0, unsigned.0);
            let high = i16x8_extmul_high_i8x16(signed.0, unsigned.0);
            let pairs = [i32x4_extadd_pairwise_i16x8(low), i32x4_extadd_pairwise_i16x8(high)];
            let even = i32x4_shuffle::<0, 2, 4, 6>(pairs[0], pairs[1]);
            let odd = i32x4_shuffle::<1, 3, 5, 7>(pairs[0], pairs[1]);
            self.add(Self(even)).add(Self(odd))
        }
    }
}

impl I16x8 {
    /// The first four as the upper halves of 32 bits, whose lower halves are 0.
    #[inline(always)]
    pub(crate) fn low_as_upper(self) -> I32x4 {
        I32x4(i16x8_shuffle::<0, 8, 0, 9, 0, 10, 0, 11>(i16x8_splat(0), self.0))
    }

    /// The last four as the upper halves of 32 bits, whose lower halves are 0.
    #[inline(always)]
    pub(crate) fn high_as_upper(self) -> I32x4 {
        I32x4(i16x8_shuffle::<0, 12, 0, 13, 0, 14, 0, 15>(i16x8_splat(0), self.0))
    }

    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self(i16x8_add(self.0, other.0))
    }

    /// The sums of the products of neighbours: int8 and numbers from 0 to 127.
    #[inline(always)]
    pub(crate) fn dot_bytes(signed: U8x16, unsigned: U8x16) -> Self {
        #[cfg(target_feature = "relaxed-simd")]
        return Self(i16x8_relaxed_dot_i8x16_i7x16(signed.0, unsigned.0));
        #[cfg(not(target_feature = "relaxed-simd"))]
        {
            let low = i16x8_extmul_low_i8x16(signed.0, unsigned.0);
            let high = i16x8_extmul_high_i8x16(signed.0, unsigned.0);
            let even = i16x8_shuffle::<0, 2, 4, 6, 8, 10, 12, 14>(low, high);
            let odd = i16x8_shuffle::<1, 3, 5, 7, 9, 11, 13, 15>(low, high);
            Self(i16x8_add(even, odd))
        }
    }

    /// The sums of neighbours.
    #[inline(always)]
    pub(crate) fn sums_of_neighbours(self) -> I32x4 {
        I32x4(i32x4_extadd_pairwise_i16x8(self.0))
    }

    #[inline(always)]
    pub(crate) fn splat(x: i16) -> Self {
        Self(i16x8_splat(x))
    }

    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(v128_and(self.0, other.0))
    }

    /// Of two lanes the larger.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self(i16x8_max(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [i16; 8] {
        cast(self.0)
    }

    /// As numbers of 32 bits.
    #[inline(always)]
    pub(crate) fn widen(self) -> [I32x4; 2] {
        [I32x4(i32x4_extend_low_i16x8(self.0)), I32x4(i32x4_extend_high_i16x8(self.0))]
    }

    /// Sixteen int8, or the nearest to them: those of `self`, then those of `other`.
    #[inline(always)]
    pub(crate) fn narrow(self, other: Self) -> U8x16 {
        U8x16(i8x16_narrow_i16x8(self.0, other.0))
    }

    /// The sums of the products of neighbours.
    #[inline(always)]
    pub(crate) fn dot(self, other: Self) -> I32x4 {
        I32x4(i32x4_dot_i16x8(self.0, other.0))
    }

    /// Shifts in the sign.
    #[inline(always)]
    pub(crate) fn shr_s<const BITS: u32>(self) -> Self {
        Self(i16x8_shr(self.0, BITS))
    }
}

impl U8x16 {
    #[inline(always)]
    pub(crate) fn splat(x: u8) -> Self {
        Self(u8x16_splat(x))
    }

    #[inline(always)]
    pub(crate) fn load(from: &[u8; 16]) -> Self {
        Self(cast(*from))
    }

    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(v128_and(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(v128_or(self.0, other.0))
    }

    /// Four bytes, the lowest first, four times.
    #[inline(always)]
    pub(crate) fn from_word(word: u32) -> Self {
        Self(u32x4_splat(word))
    }

    /// All ones where bytes are equal.
    #[inline(always)]
    pub(crate) fn equal(self, other: Self) -> Self {
        Self(u8x16_eq(self.0, other.0))
    }

    /// Shifts in zeros.
    #[inline(always)]
    pub(crate) fn shr<const BITS: u32>(self) -> Self {
        Self(u8x16_shr(self.0, BITS))
    }

    /// Shifts two bytes as one number, the first in its lowest bits.
    #[inline(always)]
    pub(crate) fn shl_in_halves<const BITS: u32>(self) -> Self {
        Self(u16x8_shl(self.0, BITS))
    }

    /// The same to lower bits.
    #[inline(always)]
    pub(crate) fn shr_in_halves<const BITS: u32>(self) -> Self {
        Self(u16x8_shr(self.0, BITS))
    }

    /// Four bytes a lane, the first in the lowest bits.
    #[inline(always)]
    pub(crate) fn words(self) -> I32x4 {
        I32x4(self.0)
    }

    /// Two bytes a lane, the first in the lowest bits.
    #[inline(always)]
    pub(crate) fn halves(self) -> I16x8 {
        I16x8(self.0)
    }

    /// Of `self` the first eight times byte `A`, then eight times byte `B`.
    #[inline(always)]
    pub(crate) fn spread<const A: usize, const B: usize>(self) -> Self {
        Self(i8x16_shuffle::<A, A, A, A, A, A, A, A, B, B, B, B, B, B, B, B>(self.0, self.0))
    }

    /// A number of 16 bits eight times, the lower byte first.
    #[inline(always)]
    pub(crate) fn splat_halves(x: u16) -> Self {
        Self(u16x8_splat(x))
    }

    #[inline(always)]
    pub(crate) fn xor(self, other: Self) -> Self {
        Self(v128_xor(self.0, other.0))
    }

    /// int8 as numbers of 16 bits.
    #[inline(always)]
    pub(crate) fn widen(self) -> [I16x8; 2] {
        [I16x8(i16x8_extend_low_i8x16(self.0)), I16x8(i16x8_extend_high_i8x16(self.0))]
    }

    /// The magnitudes of int8.
    #[inline(always)]
    pub(crate) fn magnitudes(self) -> Self {
        Self(i8x16_abs(self.0))
    }

    /// All ones where int8 are negative.
    #[inline(always)]
    pub(crate) fn signs(self) -> Self {
        Self(i8x16_shr(self.0, 7))
    }

    /// The difference of int8, or the nearest int8 to it.
    #[inline(always)]
    pub(crate) fn sub_saturating(self, other: Self) -> Self {
        Self(i8x16_sub_sat(self.0, other.0))
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [u8; 16] {
        cast(self.0)
    }
}
