//! Vectors of 128 bits. In wasm they are what SIMD128 has; elsewhere arrays, which LLVM turns into vectors. So what runs in a page is the same
//! source that native tests check.

#[cfg(not(target_feature = "simd128"))]
mod portable;
#[cfg(target_feature = "simd128")]
mod wasm;

#[cfg(not(target_feature = "simd128"))]
pub(crate) use portable::{F32x4, I16x8, I32x4, U8x16};
#[cfg(target_feature = "simd128")]
pub(crate) use wasm::{F32x4, I16x8, I32x4, U8x16};

/// Added to a number below 2²² in magnitude, it leaves the nearest integer in the lowest bits of the sum.
const ROUNDER: f32 = 12_582_912.0;

impl F32x4 {
    pub(crate) const LANES: usize = 4;

    /// The nearest integers to numbers below 2²² in magnitude, as floats and in the lowest 22 bits. Of what is no number the float is none, and the
    /// bits are any.
    #[inline(always)]
    pub(crate) fn rounded(self) -> (Self, I32x4) {
        let shifted = self.add(Self::splat(ROUNDER));
        (shifted.sub(Self::splat(ROUNDER)), shifted.bits())
    }

    /// The nearest integers to numbers below 2²² in magnitude. Of others any.
    #[inline(always)]
    pub(crate) fn round_to_i32(self) -> I32x4 {
        self.rounded().1.add(I32x4::splat(-(ROUNDER.to_bits() as i32)))
    }
}
