//! The exponential function and what follows from it.

use crate::simd::{F32x4, I32x4};

/// e^x with a relative error below 2e-7 (the polynomial of `expf` of Cephes, Moshier 1992). Below −86 it is e^−86, above 88 e^88; of what is
/// no number it is none.
#[inline(always)]
pub(crate) fn exp(x: F32x4) -> F32x4 {
    let x = x.at_least(F32x4::splat(-86.0)).at_most(F32x4::splat(88.0));
    let (n, bits) = x.mul(F32x4::splat(std::f32::consts::LOG2_E)).rounded();
    // ln 2 in two parts, the first of which has few bits: its product with n is exact.
    let r = x.sub(n.mul(F32x4::splat(0.693_359_4))).sub(n.mul(F32x4::splat(-2.121_944_4e-4)));
    let mut p = F32x4::splat(1.987_569_1e-4);
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        p = p.mul_add(r, F32x4::splat(coefficient));
    }
    let p = p.mul_add(r.mul(r), r).add(F32x4::splat(1.0));
    // 2ⁿ, from its exponent. A product keeps what is no number.
    p.mul(bits.shl::<23>().add(F32x4::splat(1.0).bits()).floats())
}

/// The hyperbolic tangent with a relative error below 3e-7 (`tanhf` of Cephes: a polynomial near zero, elsewhere by e^2x).
#[inline(always)]
pub(crate) fn tanh(x: F32x4) -> F32x4 {
    let magnitude = x.abs();
    let square = x.mul(x);
    let mut p = F32x4::splat(-5.704_988_7e-3);
    for coefficient in [2.063_909e-2, -5.373_971e-2, 0.133_314_42, -0.333_332_8] {
        p = p.mul_add(square, F32x4::splat(coefficient));
    }
    let near = p.mul(square).mul_add(x, x);
    let one = F32x4::splat(1.0);
    let far = one.sub(F32x4::splat(2.0).div(exp(magnitude.add(magnitude)).add(one)));
    let sign = x.bits().and(I32x4::splat(i32::MIN));
    // Magnitudes are in the order of their bits.
    let is_near = magnitude.bits().less(F32x4::splat(0.625).bits());
    is_near.select(near.bits(), far.bits().or(sign)).floats()
}

/// The complementary error function with a relative error below 1.2e-7, and what rounding adds (`erfcc` of Numerical Recipes, Press et al.
/// 1992).
#[inline(always)]
pub(crate) fn erfc(x: F32x4) -> F32x4 {
    let z = x.abs();
    let one = F32x4::splat(1.0);
    let t = one.div(z.mul_add(F32x4::splat(0.5), one));
    let mut p = F32x4::splat(0.170_872_77);
    for coefficient in [
        -0.822_152_23,
        1.488_515_9,
        -1.135_204,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_7,
        -1.265_512_2,
    ] {
        p = p.mul_add(t, F32x4::splat(coefficient));
    }
    let tail = t.mul(exp(p.sub(z.mul(z))));
    let is_negative = x.bits().less(I32x4::splat(0));
    is_negative.select(F32x4::splat(2.0).sub(tail).bits(), tail.bits()).floats()
}

/// The natural logarithm of a number above 2⁻¹²⁶, with a relative error below 2e-7 (the polynomial of `logf` of Cephes).
#[inline(always)]
pub(crate) fn ln(x: F32x4) -> F32x4 {
    // x = m · 2ᵉ with m from √½ to √2.
    let bits = x.bits().sub(F32x4::splat(std::f32::consts::FRAC_1_SQRT_2).bits());
    let exponent = bits.shr_s::<23>();
    let r = x.bits().sub(exponent.shl::<23>()).floats().sub(F32x4::splat(1.0));
    let mut p = F32x4::splat(7.037_683_6e-2);
    for coefficient in [
        -0.115_146_1,
        0.116_769_984,
        -0.124_201_41,
        0.142_493_23,
        -0.166_680_58,
        0.200_007_14,
        -0.249_999_94,
        0.333_333_3,
    ] {
        p = p.mul_add(r, F32x4::splat(coefficient));
    }
    let square = r.mul(r);
    let e = exponent.to_f32();
    // ln 2 in two parts, the first of which has few bits: its product with e is exact.
    let small = p.mul(r).mul(square).add(e.mul(F32x4::splat(-2.121_944_4e-4))).sub(square.mul(F32x4::splat(0.5)));
    r.add(small).add(e.mul(F32x4::splat(0.693_359_4)))
}
