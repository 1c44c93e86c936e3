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

impl F32x4 {
    pub(crate) const LANES: usize = 4;
}
