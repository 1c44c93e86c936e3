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

/// x · Φ(x) with an absolute error below 2e-7, and what rounding x adds: max(x, 0) − |x| · (1 − Φ(|x|)), where 1 − Φ is ½ divided by the eighth power of a
/// polynomial. That is the form of 7.1.28 in Abramowitz, Stegun 1964, which needs no exponential function; the coefficients are a fit of least
/// largest error up to 7, and after that what is subtracted is below 1e-10.
#[inline(always)]
pub(crate) fn gelu(x: F32x4) -> F32x4 {
    // So that powers and products stay finite.
    let z = x.abs().at_most(F32x4::splat(20.0));
    let mut p = F32x4::splat(2.841_494e-6);
    for coefficient in
        [-1.555_871_7e-5, 9.131_979_5e-5, 1.284_915e-4, 9.545_620_4e-4, 8.613_509e-3, 4.477_958_4e-2, 9.973_397e-2, 1.0]
    {
        p = p.mul_add(z, F32x4::splat(coefficient));
    }
    let p = p.mul(p);
    let p = p.mul(p);
    let p = p.mul(p);
    x.at_least(F32x4::splat(0.0)).sub(z.mul(F32x4::splat(0.5)).div(p))
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
