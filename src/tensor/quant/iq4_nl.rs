//! IQ4_NL: blocks of 32 weights, an f16 scale `d` and 16 bytes of nibbles, in the order of Q4_0, which select one of 16 values; weight j
//! is `d · value` (GGML's `block_iq4_nl`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

/// The values of the nibbles (GGML's `kvalues_iq4nl`).
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub static IQ4_NL: Format = Format {
    name: "iq4_nl",
    gguf_type: Some(20),
    block_size: 32,
    block_bytes: 18,
    unit: 2,
    unit_words: &[8, 1],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("iq4_nl.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    // Scales and nibbles have the places of Q4_0.
    repack: crate::shader!("q4_0_repack.wgsl"),
    dequantize_block: |bytes, out| dequantize(f16_at(bytes), &bytes[2..], out),
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.01));
    fill(rng, &mut block[2..]);
}

/// 32 weights from a scale and 16 bytes of nibbles.
pub(super) fn dequantize(scale: f32, nibbles: &[u8], out: &mut [f32]) {
    for (j, byte) in nibbles.iter().enumerate() {
        out[j] = scale * f32::from(VALUES[usize::from(byte & 15)]);
        out[j + 16] = scale * f32::from(VALUES[usize::from(byte >> 4)]);
    }
}
