//! Q2_K: superblocks of 256 weights, 16 bytes of scales and minima (four bits each, for every 16 weights), 64 bytes of quants, and the
//! f16 factors `d` and `dmin`; a weight is `d · scale · quant − dmin · minimum` (GGML's `block_q2_K`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q2_K: Format = Format {
    name: "q2_k",
    gguf_type: Some(10),
    block_size: 256,
    block_bytes: 84,
    unit: 8,
    unit_words: &[16, 5],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q2_k.wgsl"),
    int8: Some(Int8View { halves: true, offsets: true }),
    repack: crate::shader!("q2_k_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let (d, dmin) = (f16_at(&bytes[80..]), f16_at(&bytes[82..]));
        for (j, out) in out.iter_mut().enumerate() {
            let scale = bytes[j / 16];
            let quant = two_bits(&bytes[16..80], j);
            *out = d * f32::from(scale & 15) * f32::from(quant) - dmin * f32::from(scale >> 4);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    fill(rng, &mut block[..80]);
    block[80..82].copy_from_slice(&random_scale(rng, 0.03));
    block[82..].copy_from_slice(&random_scale(rng, 0.03));
}

/// The quant of weight j: each 32 bytes hold four blocks of 32 weights, two bits of each in a byte.
pub(super) fn two_bits(quants: &[u8], j: usize) -> u8 {
    quants[j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3
}
