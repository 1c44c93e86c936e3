//! Q5_K: as Q4_K, with 32 bytes of fifth bits between scales and nibbles (GGML's `block_q5_K`).

use super::q4_k::{nibble, scale_and_minimum};
use super::{Format, Int8View, Table, fill, random_scale};
use crate::tensor::Rng;

pub static Q5_K: Format = Format {
    name: "q5_k",
    gguf_type: Some(13),
    block_size: 256,
    block_bytes: 176,
    unit: 8,
    unit_words: &[32, 12],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q5_k.wgsl"),
    int8: Some(Int8View { halves: false, offsets: true }),
    repack: crate::shader!("q5_k_repack.wgsl"),
    dequantize_block: |bytes, out| {
        for (j, out) in out.iter_mut().enumerate() {
            let (scale, minimum) = scale_and_minimum(bytes, j / 32);
            let quant = nibble(&bytes[48..], j) | (bytes[16 + j % 32] >> (j / 32) & 1) << 4;
            *out = scale * f32::from(quant) - minimum;
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.0015));
    block[2..4].copy_from_slice(&random_scale(rng, 0.02));
    fill(rng, &mut block[4..]);
}
