//! The vectors as arrays.

use bytemuck::{Pod, Zeroable, cast};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct F32x4([f32; 4]);

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct I32x4([i32; 4]);

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct I16x8([i16; 8]);

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct U8x16([u8; 16]);

#[inline(always)]
fn zip<T: Copy, const N: usize>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

impl F32x4 {
    #[inline(always)]
    pub(crate) fn splat(x: f32) -> Self {
        Self([x; 4])
    }

    #[inline(always)]
    pub(crate) fn load(from: &[f32; 4]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [f32; 4] {
        self.0
    }

    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a + b))
    }

    #[inline(always)]
    pub(crate) fn sub(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a - b))
    }

    #[inline(always)]
    pub(crate) fn mul(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a * b))
    }

    #[inline(always)]
    pub(crate) fn div(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a / b))
    }

    /// `self · factor + summand`, perhaps rounded once.
    #[inline(always)]
    pub(crate) fn mul_add(self, factor: Self, summand: Self) -> Self {
        self.mul(factor).add(summand)
    }

    /// The sum of the lanes.
    #[inline(always)]
    pub(crate) fn sum(self) -> f32 {
        let [a, b, c, d] = self.0;
        (a + c) + (b + d)
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> I32x4 {
        I32x4(cast(self.0))
    }

    /// The largest lane. What is no number may be left out.
    #[inline(always)]
    pub(crate) fn largest(self) -> f32 {
        let [a, b, c, d] = self.0;
        a.max(b).max(c.max(d))
    }

    #[inline(always)]
    pub(crate) fn abs(self) -> Self {
        Self(self.0.map(f32::abs))
    }

    /// Of two lanes the larger, in one instruction: what is no number stays one in `self` alone.
    #[inline(always)]
    pub(crate) fn at_least(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| if a < b { b } else { a }))
    }

    /// Of two lanes the smaller, in one instruction: what is no number stays one in `self` alone.
    #[inline(always)]
    pub(crate) fn at_most(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| if b < a { b } else { a }))
    }

    /// All ones where a lane is greater; zeros where one of both is no number.
    #[inline(always)]
    pub(crate) fn greater(self, other: Self) -> I32x4 {
        I32x4(std::array::from_fn(|lane| -i32::from(self.0[lane] > other.0[lane])))
    }

    /// As whole numbers from 0 to 2³² − 1, without what is behind the point.
    #[inline(always)]
    pub(crate) fn to_u32(self) -> I32x4 {
        I32x4(self.0.map(|x| x as u32 as i32))
    }

    /// The sums of the lanes of four vectors.
    #[inline(always)]
    pub(crate) fn sums(vectors: [Self; 4]) -> Self {
        Self(vectors.map(Self::sum))
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
        Self([x; 4])
    }

    #[inline(always)]
    pub(crate) fn new(lanes: [i32; 4]) -> Self {
        Self(lanes)
    }

    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a & b))
    }

    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a | b))
    }

    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self(zip(self.0, other.0, i32::wrapping_add))
    }

    #[inline(always)]
    pub(crate) fn sub(self, other: Self) -> Self {
        Self(zip(self.0, other.0, i32::wrapping_sub))
    }

    #[inline(always)]
    pub(crate) fn mul(self, other: Self) -> Self {
        Self(zip(self.0, other.0, i32::wrapping_mul))
    }

    /// The upper halves of the products of unsigned numbers.
    #[inline(always)]
    pub(crate) fn mul_high_u(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| ((u64::from(a as u32) * u64::from(b as u32)) >> 32) as i32))
    }

    #[inline(always)]
    pub(crate) fn xor(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a ^ b))
    }

    #[inline(always)]
    pub(crate) fn shl<const BITS: u32>(self) -> Self {
        Self(self.0.map(|x| x << BITS))
    }

    /// Shifts in zeros.
    #[inline(always)]
    pub(crate) fn shr_u<const BITS: u32>(self) -> Self {
        Self(self.0.map(|x| ((x as u32) >> BITS) as i32))
    }

    /// Shifts in the sign.
    #[inline(always)]
    pub(crate) fn shr_s<const BITS: u32>(self) -> Self {
        Self(self.0.map(|x| x >> BITS))
    }

    /// All ones where a lane is less.
    #[inline(always)]
    pub(crate) fn less(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| -i32::from(a < b)))
    }

    /// The bits of `a` where those of `self` are ones, and those of `b` elsewhere.
    #[inline(always)]
    pub(crate) fn select(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] & a.0[lane] | !self.0[lane] & b.0[lane]))
    }

    /// Of two lanes the larger.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self(zip(self.0, other.0, i32::max))
    }

    /// The largest lane.
    #[inline(always)]
    pub(crate) fn largest(self) -> i32 {
        let [a, b, c, d] = self.0;
        a.max(b).max(c.max(d))
    }

    /// Eight numbers of 16 bits, or the nearest to them: those of `self`, then those of `other`.
    #[inline(always)]
    pub(crate) fn narrow(self, other: Self) -> I16x8 {
        let narrowed = |x: i32| x.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;
        I16x8(std::array::from_fn(|lane| narrowed(if lane < 4 { self.0[lane] } else { other.0[lane - 4] })))
    }

    /// Of two lanes the smaller.
    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        Self(zip(self.0, other.0, i32::min))
    }

    #[inline(always)]
    pub(crate) fn to_f32(self) -> F32x4 {
        F32x4(self.0.map(|x| x as f32))
    }

    /// Of unsigned numbers.
    #[inline(always)]
    pub(crate) fn to_f32_u(self) -> F32x4 {
        F32x4(self.0.map(|x| x as u32 as f32))
    }

    #[inline(always)]
    pub(crate) fn floats(self) -> F32x4 {
        F32x4(cast(self.0))
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [i32; 4] {
        self.0
    }

    /// Adds to each lane the products of four int8 and four int8.
    #[inline(always)]
    pub(crate) fn add_dot_int8(self, a: U8x16, b: U8x16) -> Self {
        Self(std::array::from_fn(|lane| {
            let product = |i: usize| i32::from(a.0[lane * 4 + i] as i8) * i32::from(b.0[lane * 4 + i] as i8);
            self.0[lane] + product(0) + product(1) + product(2) + product(3)
        }))
    }

    /// Adds to each lane the products of four bytes: int8 and numbers from 0 to 127.
    #[inline(always)]
    pub(crate) fn add_dot_bytes(self, signed: U8x16, unsigned: U8x16) -> Self {
        Self(std::array::from_fn(|lane| {
            let product = |i: usize| i32::from(signed.0[lane * 4 + i] as i8) * i32::from(unsigned.0[lane * 4 + i]);
            self.0[lane] + product(0) + product(1) + product(2) + product(3)
        }))
    }
}

impl I16x8 {
    /// The first four as the upper halves of 32 bits, whose lower halves are 0.
    #[inline(always)]
    pub(crate) fn low_as_upper(self) -> I32x4 {
        I32x4(std::array::from_fn(|lane| i32::from(self.0[lane]) << 16))
    }

    /// The last four as the upper halves of 32 bits, whose lower halves are 0.
    #[inline(always)]
    pub(crate) fn high_as_upper(self) -> I32x4 {
        I32x4(std::array::from_fn(|lane| i32::from(self.0[lane + 4]) << 16))
    }

    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self(zip(self.0, other.0, i16::wrapping_add))
    }

    /// The sums of the products of neighbours: int8 and numbers from 0 to 127.
    #[inline(always)]
    pub(crate) fn dot_bytes(signed: U8x16, unsigned: U8x16) -> Self {
        let product = |i: usize| i16::from(signed.0[i] as i8) * i16::from(unsigned.0[i]);
        Self(std::array::from_fn(|lane| product(lane * 2) + product(lane * 2 + 1)))
    }

    /// The sums of neighbours.
    #[inline(always)]
    pub(crate) fn sums_of_neighbours(self) -> I32x4 {
        I32x4(std::array::from_fn(|lane| i32::from(self.0[lane * 2]) + i32::from(self.0[lane * 2 + 1])))
    }

    #[inline(always)]
    pub(crate) fn splat(x: i16) -> Self {
        Self([x; 8])
    }

    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a & b))
    }

    /// Of two lanes the larger.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self(zip(self.0, other.0, i16::max))
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [i16; 8] {
        self.0
    }

    /// As numbers of 32 bits.
    #[inline(always)]
    pub(crate) fn widen(self) -> [I32x4; 2] {
        [0, 4].map(|at| I32x4(std::array::from_fn(|lane| i32::from(self.0[at + lane]))))
    }

    /// Sixteen int8, or the nearest to them: those of `self`, then those of `other`.
    #[inline(always)]
    pub(crate) fn narrow(self, other: Self) -> U8x16 {
        let narrowed = |x: i16| x.clamp(i16::from(i8::MIN), i16::from(i8::MAX)) as u8;
        U8x16(std::array::from_fn(|lane| narrowed(if lane < 8 { self.0[lane] } else { other.0[lane - 8] })))
    }

    /// The sums of the products of neighbours.
    #[inline(always)]
    pub(crate) fn dot(self, other: Self) -> I32x4 {
        let product = |at: usize| i32::from(self.0[at]) * i32::from(other.0[at]);
        I32x4(std::array::from_fn(|lane| product(lane * 2) + product(lane * 2 + 1)))
    }

    /// Shifts in the sign.
    #[inline(always)]
    pub(crate) fn shr_s<const BITS: u32>(self) -> Self {
        Self(self.0.map(|x| x >> BITS))
    }
}

impl U8x16 {
    #[inline(always)]
    pub(crate) fn splat(x: u8) -> Self {
        Self([x; 16])
    }

    #[inline(always)]
    pub(crate) fn load(from: &[u8; 16]) -> Self {
        Self(*from)
    }

    /// Four bytes, the lowest first, four times.
    #[inline(always)]
    pub(crate) fn from_word(word: u32) -> Self {
        Self(cast([word.to_le_bytes(); 4]))
    }

    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a & b))
    }

    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a | b))
    }

    /// All ones where bytes are equal.
    #[inline(always)]
    pub(crate) fn equal(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| if a == b { 255 } else { 0 }))
    }

    /// Shifts in zeros.
    #[inline(always)]
    pub(crate) fn shr<const BITS: u32>(self) -> Self {
        Self(self.0.map(|x| x >> BITS))
    }

    /// Shifts two bytes as one number, the first in its lowest bits.
    #[inline(always)]
    pub(crate) fn shl_in_halves<const BITS: u32>(self) -> Self {
        Self(cast(cast::<[u8; 16], [u16; 8]>(self.0).map(|x| (u16::from_le(x) << BITS).to_le())))
    }

    /// The same to lower bits.
    #[inline(always)]
    pub(crate) fn shr_in_halves<const BITS: u32>(self) -> Self {
        Self(cast(cast::<[u8; 16], [u16; 8]>(self.0).map(|x| (u16::from_le(x) >> BITS).to_le())))
    }

    /// Four bytes a lane, the first in the lowest bits.
    #[inline(always)]
    pub(crate) fn words(self) -> I32x4 {
        I32x4(cast::<[u8; 16], [i32; 4]>(self.0).map(i32::from_le))
    }

    /// Two bytes a lane, the first in the lowest bits.
    #[inline(always)]
    pub(crate) fn halves(self) -> I16x8 {
        I16x8(cast::<[u8; 16], [i16; 8]>(self.0).map(i16::from_le))
    }

    /// Of `self` the first eight times byte `A`, then eight times byte `B`.
    #[inline(always)]
    pub(crate) fn spread<const A: usize, const B: usize>(self) -> Self {
        Self(std::array::from_fn(|lane| self.0[if lane < 8 { A } else { B }]))
    }

    /// A number of 16 bits eight times, the lower byte first.
    #[inline(always)]
    pub(crate) fn splat_halves(x: u16) -> Self {
        Self(cast([x.to_le_bytes(); 8]))
    }

    #[inline(always)]
    pub(crate) fn xor(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| a ^ b))
    }

    /// int8 as numbers of 16 bits.
    #[inline(always)]
    pub(crate) fn widen(self) -> [I16x8; 2] {
        [0, 8].map(|at| I16x8(std::array::from_fn(|lane| i16::from(self.0[at + lane] as i8))))
    }

    /// The magnitudes of int8.
    #[inline(always)]
    pub(crate) fn magnitudes(self) -> Self {
        Self(self.0.map(|x| (x as i8).unsigned_abs()))
    }

    /// All ones where int8 are negative.
    #[inline(always)]
    pub(crate) fn signs(self) -> Self {
        Self(self.0.map(|x| ((x as i8) >> 7) as u8))
    }

    /// The difference of int8, or the nearest int8 to it.
    #[inline(always)]
    pub(crate) fn sub_saturating(self, other: Self) -> Self {
        Self(zip(self.0, other.0, |a, b| (a as i8).saturating_sub(b as i8) as u8))
    }

    #[inline(always)]
    pub(crate) fn lanes(self) -> [u8; 16] {
        self.0
    }
}
