//! FP8: floats of eight bits (E4M3, OCP 8-bit Floating Point Specification 1.0) with an f32 scale for each group.

use super::{Kind, packed_formats, word_of};
use crate::gpu::Define;
use crate::tensor::quant::{BLOCK, Format, Table};

/// The number of a byte: a sign, four bits of exponent and three of mantissa. All ones are NaN, and there is no infinity.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    let magnitude = match exponent {
        _ if byte & 0x7f == 0x7f => f32::NAN,
        0 => mantissa / 512.0,
        _ => (8.0 + mantissa) * f32::from_bits((u32::from(exponent) + 117) << 23),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

fn dequantize(_: Kind, block: &[u8], out: &mut [f32]) {
    let (bytes, word) = word_of(block);
    for (byte, out) in bytes.iter().zip(out) {
        *out = e4m3(*byte) * f32::from_bits(word);
    }
}

packed_formats! {
    "fp8.wgsl", None, Table::None, 0, dequantize;
    FP8_32 Fp8 "fp8_32" 8 32 [],
    FP8_64 Fp8 "fp8_64" 8 64 [],
    FP8_128 Fp8 "fp8_128" 8 128 [],
}
