//! Q5_1: blocks of 32 weights, an f16 scale `d`, an f16 minimum `m`, 32 fifth bits and 16 bytes of nibbles; weight j is
//! `d · quant + m` (GGML's `block_q5_1`).

use super::q5_0::five_bits;
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q5_1: Format = Format {
    name: "q5_1",
    gguf_type: Some(7),
    block_size: 32,
    block_bytes: 24,
    unit: 1,
    unit_words: &[4, 2],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q5_1.wgsl"),
    int8: Some(Int8View { halves: false, offsets: true }),
    repack: crate::shader!("q5_1_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let (d, m) = (f16_at(bytes), f16_at(&bytes[2..]));
        for (j, quant) in five_bits(&bytes[4..8], &bytes[8..]) {
            out[j] = d * f32::from(quant) + m;
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.05));
    block[2..4].copy_from_slice(&random_scale(rng, 0.8));
    fill(rng, &mut block[4..]);
}
