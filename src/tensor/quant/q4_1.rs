//! Q4_1: blocks of 32 weights, an f16 scale `d`, an f16 minimum `m` and 16 bytes of nibbles; weight j is `d · nibble + m`. Nibbles
//! are in the order of Q4_0 (GGML's `block_q4_1`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q4_1: Format = Format {
    name: "q4_1",
    gguf_type: Some(3),
    block_size: 32,
    block_bytes: 20,
    unit: 1,
    unit_words: &[4, 1],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q4_1.wgsl"),
    int8: Some(Int8View { halves: false, offsets: true }),
    repack: crate::shader!("q4_1_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let (d, m) = (f16_at(bytes), f16_at(&bytes[2..]));
        for (j, byte) in bytes[4..].iter().enumerate() {
            out[j] = d * f32::from(byte & 15) + m;
            out[j + 16] = d * f32::from(byte >> 4) + m;
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.1));
    block[2..4].copy_from_slice(&random_scale(rng, 0.8));
    fill(rng, &mut block[4..]);
}
