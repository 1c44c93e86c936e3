//! Q5_0: blocks of 32 weights, an f16 scale `d`, 32 fifth bits and 16 bytes of nibbles; weight j is `d · (quant − 16)`, its fifth bit
//! is bit j. Nibbles are in the order of Q4_0 (GGML's `block_q5_0`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q5_0: Format = Format {
    name: "q5_0",
    gguf_type: Some(6),
    block_size: 32,
    block_bytes: 22,
    unit: 2,
    unit_words: &[8, 3],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q5_0.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("q5_0_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, quant) in five_bits(&bytes[2..6], &bytes[6..]) {
            out[j] = d * (f32::from(quant) - 16.0);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.05));
    fill(rng, &mut block[2..]);
}

/// Weights and their quants, from 4 bytes of fifth bits and 16 of nibbles.
pub(super) fn five_bits<'a>(fifths: &'a [u8], nibbles: &'a [u8]) -> impl Iterator<Item = (usize, u8)> + 'a {
    (0..32).map(|j| {
        let nibble = nibbles[j % 16] >> (j / 16 * 4) & 15;
        (j, nibble | (fifths[j / 8] >> (j % 8) & 1) << 4)
    })
}
