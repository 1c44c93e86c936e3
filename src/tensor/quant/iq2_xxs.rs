//! IQ2_XXS: superblocks of 256 weights, an f16 factor `d`, and for each 32 weights four indices of a grid, a byte each, and a word of four
//! times seven signs and a scale of four bits; a weight is `d · (scale + ½) / 4 · ±number` (GGML's `block_iq2_xxs`).

use super::grids::{self, sign_of_seven};
use super::{Format, Int8View, Table, f16_at, fill, random_scale, word_at};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static IQ2_XXS: Format = Format {
    name: "iq2_xxs",
    gguf_type: Some(16),
    block_size: 256,
    block_bytes: 66,
    unit: 16,
    unit_words: &[32, 1],
    table: Table::Shared { words: 256, values: || grids::IQ2_XXS.words() },
    defines: &[
        ("FILE_BYTES", Define::U32(66)),
        ("FILE_WORDS", Define::U32(16)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(0)),
        ("BODY_AT", Define::U32(2)),
        ("WEIGHT_TABLE", Define::U32(256)),
    ],
    wgsl: crate::shader!("iq2_xxs.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, out) in out.iter_mut().enumerate() {
            let block = &bytes[2 + j / 32 * 8..][..8];
            let (signs, l) = (word_at(&block[4..]), j % 32 / 8);
            let scale = d * ((signs >> 28) as f32 + 0.5) * 0.25;
            *out = scale * grids::IQ2_XXS.of_eight(block[l].into(), j % 8) * sign_of_seven(signs >> (7 * l), j % 8);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.005));
    fill(rng, &mut block[2..]);
}
