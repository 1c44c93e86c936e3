//! Q4_K: superblocks of 256 weights, the f16 factors `d` and `dmin`, 12 bytes of scales and minima (six bits each, for every 32
//! weights) and 128 bytes of nibbles; a weight is `d · scale · quant − dmin · minimum` (GGML's `block_q4_K`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q4_K: Format = Format {
    name: "q4_k",
    gguf_type: Some(12),
    block_size: 256,
    block_bytes: 144,
    unit: 8,
    unit_words: &[32, 4],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q4_k.wgsl"),
    int8: Some(Int8View { halves: false, offsets: true }),
    repack: crate::shader!("q4_k_repack.wgsl"),
    dequantize_block: |bytes, out| {
        for (j, out) in out.iter_mut().enumerate() {
            let (scale, minimum) = scale_and_minimum(bytes, j / 32);
            *out = scale * f32::from(nibble(&bytes[16..], j)) - minimum;
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.003));
    block[2..4].copy_from_slice(&random_scale(rng, 0.02));
    fill(rng, &mut block[4..]);
}

/// `d · scale` and `dmin · minimum` of a block of 32, from the factors, scales and minima at the start of a superblock.
pub(super) fn scale_and_minimum(header: &[u8], block: usize) -> (f32, f32) {
    let bytes = &header[4..16];
    // Those of the first four blocks are in the low six bits of a byte each; those of the others are in four bits of the last bytes
    // and the two remaining bits of the first ones.
    let (scale, minimum) = match block {
        0..4 => (bytes[block] & 63, bytes[block + 4] & 63),
        _ => {
            ((bytes[block + 4] & 15) | (bytes[block - 4] >> 6) << 4, (bytes[block + 4] >> 4) | (bytes[block] >> 6) << 4)
        }
    };
    (f16_at(header) * f32::from(scale), f16_at(&header[2..]) * f32::from(minimum))
}

/// The nibble of weight j: each 32 bytes hold two blocks of 32 weights, the first in the low nibbles.
pub(super) fn nibble(quants: &[u8], j: usize) -> u8 {
    quants[j / 64 * 32 + j % 32] >> (j % 64 / 32 * 4) & 15
}
