//! f16 and bf16 as f32, without a table, and the way back to f16.

use crate::lanes::padded;
use crate::simd::{F32x4, I16x8, I32x4};

/// The exponents of f16 begin at −15 and those of f32 at −127.
const REBIAS: u32 = 112 << 23;

/// An f16 from its bits. As bits of an f32, sign, exponent and mantissa are in place once they are shifted, but for the bias of the exponent.
/// A subnormal lacks the one before its mantissa: it gets an exponent, whose power of two is then subtracted.
#[inline(always)]
pub(crate) fn f16(bits: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bits));
    let sign = (bits & 0x8000) << 16;
    let rest = (bits & 0x7fff) << 13;
    // Without branches, since scales near the smallest normal one would take now this and now that.
    let is_subnormal = u32::from(rest < 1 << 23);
    let is_not_finite = u32::from(rest >= 31 << 23);
    let biased = rest + REBIAS + (is_subnormal << 23) + is_not_finite * REBIAS;
    let magnitude = f32::from_bits(biased) - f32::from_bits(is_subnormal * (REBIAS + (1 << 23)));
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Eight f16.
#[inline(always)]
pub(crate) fn f16x8(bits: I16x8) -> [F32x4; 2] {
    [f16x4(bits.low_as_upper()), f16x4(bits.high_as_upper())]
}

/// Four f16 in the upper halves of words, as `f16` does it.
#[inline(always)]
fn f16x4(upper: I32x4) -> F32x4 {
    let sign = upper.and(I32x4::splat(i32::MIN));
    let rest = upper.and(I32x4::splat(0x7fff_0000)).shr_u::<3>();
    let one = I32x4::splat(1 << 23);
    let is_subnormal = rest.less(one);
    let is_not_finite = I32x4::splat((31 << 23) - 1).less(rest);
    let biased = rest
        .add(I32x4::splat(REBIAS as i32))
        .add(is_subnormal.and(one))
        .add(is_not_finite.and(I32x4::splat(REBIAS as i32)));
    let excess = is_subnormal.and(I32x4::splat((REBIAS + (1 << 23)) as i32));
    biased.floats().sub(excess.floats()).bits().or(sign).floats()
}

/// Eight f16 that are all numbers: exponents 31 are taken for numbers as well.
#[inline(always)]
pub(crate) fn finite_f16x8(bits: I16x8) -> [F32x4; 2] {
    bits.widen().map(|bits| {
        // The sign is there several times, and stays in its place. The product puts the bias right, of subnormals too.
        let moved = bits.shl::<13>().and(I32x4::splat(0x8fff_ffff_u32 as i32));
        moved.floats().mul(F32x4::splat(f32::from_bits(REBIAS + (127 << 23))))
    })
}

/// The magnitudes of f16 from here on are infinite or no numbers.
pub(crate) const NOT_FINITE: i16 = 31 << 10;

/// Eight bf16.
#[inline(always)]
pub(crate) fn bf16x8(bits: I16x8) -> [F32x4; 2] {
    [bits.low_as_upper().floats(), bits.high_as_upper().floats()]
}

/// Writes numbers as f16, little-endian and rounded to the nearest, of two that are as near to the even one. As many as both have.
pub fn to_f16(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks(8).zip(out.chunks_mut(16)) {
        let (low, high) = x.split_at(x.len().min(F32x4::LANES));
        let halves: [u8; 16] = bytemuck::cast(to_f16x4(padded(low)).narrow(to_f16x4(padded(high))).lanes());
        let bytes = out.len().min(2 * x.len());
        out[..bytes].copy_from_slice(&halves[..bytes]);
    }
}

/// Four f16, each as a signed number of 16 bits (after `float_to_half_fast3_rtne`, Giesen 2012).
#[inline(always)]
fn to_f16x4(x: F32x4) -> I32x4 {
    let magnitude = x.abs().bits();
    // Small ones are subnormal: a sum with a half has their bits at its end, and rounds them.
    let subnormal = magnitude.floats().add(F32x4::splat(0.5)).bits().add(I32x4::splat(-0x3f00_0000));
    // The bias of the exponent, and what rounds up: a little less than a half, and one more if the last bit that stays is odd.
    let is_odd = magnitude.shr_u::<13>().and(I32x4::splat(1));
    let normal = magnitude.add(I32x4::splat(0xfff - REBIAS as i32)).add(is_odd).shr_u::<13>();
    let infinite = I32x4::splat(31 << 10);
    let not_a_number = magnitude.shr_u::<13>().and(I32x4::splat(0x3ff)).or(I32x4::splat(0x7e00));
    let is_subnormal = magnitude.less(I32x4::splat(113 << 23));
    let is_too_large = I32x4::splat((143 << 23) - 1).less(magnitude);
    let is_not_a_number = I32x4::splat(255 << 23).less(magnitude);
    let finite = is_subnormal.select(subnormal, normal);
    let half = is_not_a_number.select(not_a_number, is_too_large.select(infinite, finite));
    // The sign in all upper bits, so that it stays when numbers become those of 16 bits.
    let sign = x.bits().shr_s::<16>().and(I32x4::splat(0xffff_8000_u32 as i32));
    half.or(sign)
}
