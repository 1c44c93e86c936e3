//! MXFP4: blocks of 32 weights, an exponent `e` and 16 bytes of nibbles, in the order of Q4_0, which are floats of four bits; weight j is
//! `2^(e − 127) · float` (OCP Microscaling Formats 1.0; GGML's `block_mxfp4`).

use super::{Format, Int8View, Table, fill};
use crate::tensor::Rng;

/// Twice the floats of four bits (E2M1): one bit of sign, two of exponent, one of mantissa.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub static MXFP4: Format = Format {
    name: "mxfp4",
    gguf_type: Some(39),
    block_size: 32,
    block_bytes: 17,
    unit: 4,
    unit_words: &[16, 1],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("mxfp4.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("mxfp4_repack.wgsl"),
    dequantize_block: |bytes, out| {
        // Half of the power, because the values are doubled; for the two lowest exponents that is a denormal.
        let half = f32::from_bits(match u32::from(bytes[0]) {
            e @ 0..2 => 0x0020_0000 << e,
            e => (e - 1) << 23,
        });
        for (j, byte) in bytes[1..].iter().enumerate() {
            out[j] = half * f32::from(DOUBLED[usize::from(byte & 15)]);
            out[j + 16] = half * f32::from(DOUBLED[usize::from(byte >> 4)]);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[0] = 120 + rng.below(8) as u8;
    fill(rng, &mut block[1..]);
}
