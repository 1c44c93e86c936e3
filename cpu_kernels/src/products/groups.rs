//! Rows of groups with a word each (`Groups`).

use super::activations::{Order, VECTORS, natural};
use super::source::{Source, add_products, floats};
use crate::blocks::{PIECE, nibbles};
use crate::format::Groups;
use crate::simd::{F32x4, I32x4, U8x16};

/// The quants of a row of groups.
pub(super) trait Quants {
    /// The order of the vectors of a piece.
    const ORDER: Order;
    /// Whether something is added to the products of scales and quants.
    const OFFSETS: bool;
    /// The bytes of a piece.
    type Stored: bytemuck::Pod;

    /// A piece as floats, times the powers of two that the order divides activations by.
    fn floats(&self, stored: &Self::Stored) -> [F32x4; VECTORS];
}

/// What reads rows.
pub(super) struct Rows<Q> {
    pub(super) groups: Groups,
    pub(super) quants: Q,
}

impl<Q: Quants> Rows<Q> {
    fn pieces(&self) -> usize {
        self.groups.columns / PIECE
    }

    fn group_bytes(&self) -> usize {
        self.pieces() * size_of::<Q::Stored>() + 4
    }

    /// The pieces of a group, and its scale and offset.
    #[inline(always)]
    fn group<'a>(&self, group: &'a [u8]) -> (&'a [Q::Stored], [F32x4; 2]) {
        let (stored, word) = group.split_at(group.len().saturating_sub(4));
        let word = u32::from_le_bytes(word.first_chunk().copied().unwrap_or_default());
        let (scale, offset) = (self.groups.scale_and_offset)(word);
        (bytemuck::cast_slice(stored), [scale, offset].map(F32x4::splat))
    }
}

impl<Q: Quants> Source for Rows<Q> {
    const ORDER: Order = Q::ORDER;
    const SUMS: bool = Q::OFFSETS;

    #[inline(always)]
    fn unpack(&self, row: &[u8], first: usize, mut out: &mut [[F32x4; VECTORS]]) {
        let pieces = self.pieces();
        let mut skipped = first % pieces;
        for group in row.chunks_exact(self.group_bytes()).skip(first / pieces) {
            if out.is_empty() {
                return;
            }
            let (stored, [scale, offset]) = self.group(group);
            let stored = &stored[skipped..];
            skipped = 0;
            let (of_group, rest) = out.split_at_mut(stored.len().min(out.len()));
            for (stored, out) in stored.iter().zip(of_group) {
                let floats = self.quants.floats(stored);
                for i in 0..VECTORS {
                    out[i] = if Q::OFFSETS {
                        let offset = offset.mul(F32x4::splat(1.0 / Q::ORDER.factor(i % 4)));
                        floats[i].mul_add(scale, offset)
                    } else {
                        floats[i].mul(scale)
                    };
                }
            }
            out = rest;
        }
    }

    #[inline(always)]
    fn dot(&self, row: &[u8], x: &[[F32x4; VECTORS]], sums: &[[F32x4; 2]]) -> f32 {
        let zero = F32x4::splat(0.0);
        let mut total = zero;
        let pieces = self.pieces();
        for (at, (group, x)) in row.chunks_exact(self.group_bytes()).zip(x.chunks_exact(pieces)).enumerate() {
            let (stored, [scale, offset]) = self.group(group);
            let mut products = [zero; 4];
            for (stored, x) in stored.iter().zip(x) {
                add_products(&self.quants.floats(stored), x, &mut products);
            }
            let [a, b, c, d] = products;
            total = a.add(b).add(c.add(d)).mul_add(scale, total);
            if Q::OFFSETS {
                let mut sum = zero;
                for [low, high] in sums.iter().skip(at * pieces).take(pieces) {
                    sum = sum.add(low.add(*high));
                }
                total = sum.mul_add(offset, total);
            }
        }
        total.sum()
    }
}

/// From 0 to 15.
pub(super) struct Nibbles;

impl Quants for Nibbles {
    const ORDER: Order = Order::BytesInPlace;
    const OFFSETS: bool = true;
    type Stored = [u8; 16];

    #[inline(always)]
    fn floats(&self, stored: &[u8; 16]) -> [F32x4; VECTORS] {
        halves(nibbles(U8x16::load(stored)), floats::<false>)
    }
}

/// int8.
pub(super) struct Bytes;

impl Quants for Bytes {
    const ORDER: Order = Order::BytesOnTop;
    const OFFSETS: bool = true;
    type Stored = [[u8; 16]; 2];

    #[inline(always)]
    fn floats(&self, stored: &[[u8; 16]; 2]) -> [F32x4; VECTORS] {
        halves([U8x16::load(&stored[0]), U8x16::load(&stored[1])], floats::<true>)
    }
}

/// Floats of eight bits.
pub(super) struct Fp8;

impl Quants for Fp8 {
    const ORDER: Order = Order::BytesOnTop;
    const OFFSETS: bool = false;
    type Stored = [[u8; 16]; 2];

    #[inline(always)]
    fn floats(&self, stored: &[[u8; 16]; 2]) -> [F32x4; VECTORS] {
        halves([U8x16::load(&stored[0]), U8x16::load(&stored[1])], |bytes| {
            let words = bytes.words();
            [e4m3(words.shl::<24>()), e4m3(words.shl::<16>()), e4m3(words.shl::<8>()), e4m3(words)]
        })
    }
}

/// Numbers of a table.
pub(super) struct Codes(pub(super) &'static [f32; 16]);

impl Quants for Codes {
    const ORDER: Order = Order::Natural;
    const OFFSETS: bool = false;
    type Stored = [u8; 16];

    #[inline(always)]
    fn floats(&self, stored: &[u8; 16]) -> [F32x4; VECTORS] {
        let mut numbers = [0.0; PIECE];
        for (at, byte) in stored.iter().enumerate() {
            numbers[at] = self.0[usize::from(byte & 15)];
            numbers[at + 16] = self.0[usize::from(byte >> 4)];
        }
        natural(&numbers)
    }
}

#[inline(always)]
fn halves(quants: [U8x16; 2], floats: impl Fn(U8x16) -> [F32x4; 4]) -> [F32x4; VECTORS] {
    let [[a, b, c, d], [e, f, g, h]] = [floats(quants[0]), floats(quants[1])];
    [a, b, c, d, e, f, g, h]
}

/// Floats of eight bits in the highest bits of words, times 2²⁴. Exponent and mantissa are shifted to their places; a subnormal lacks the one
/// before its mantissa, so it gets an exponent, whose power of two is then subtracted.
#[inline(always)]
fn e4m3(upper: I32x4) -> F32x4 {
    const REBIAS: i32 = (120 + 24) << 23;
    let sign = upper.and(I32x4::splat(i32::MIN));
    let rest = upper.and(I32x4::splat(0x7f00_0000)).shr_u::<4>();
    let one = I32x4::splat(1 << 23);
    let is_subnormal = rest.less(one);
    let is_nan = I32x4::splat((0x7f << 20) - 1).less(rest);
    let biased = rest.add(I32x4::splat(REBIAS)).add(is_subnormal.and(one));
    let excess = is_subnormal.and(I32x4::splat(REBIAS + (1 << 23)));
    let magnitude = biased.floats().sub(excess.floats()).bits().or(is_nan.and(I32x4::splat(0x7fc0_0000)));
    magnitude.or(sign).floats()
}
