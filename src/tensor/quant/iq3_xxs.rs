//! IQ3_XXS: superblocks of 256 weights, an f16 factor `d`, for each four weights an index of a grid, a byte each, and for each 32 a word of
//! four times seven signs and a scale of four bits; a weight is `d · (scale + ½) / 2 · ±number` (GGML's `block_iq3_xxs`).

use super::grids::{self, sign_of_seven};
use super::{Format, Int8View, Table, f16_at, fill, random_scale, word_at};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static IQ3_XXS: Format = Format {
    name: "iq3_xxs",
    gguf_type: Some(18),
    block_size: 256,
    block_bytes: 98,
    unit: 16,
    unit_words: &[48, 1],
    table: Table::Shared { words: 256, values: || grids::IQ3_XXS.words() },
    defines: &[
        ("FILE_BYTES", Define::U32(98)),
        ("FILE_WORDS", Define::U32(24)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(0)),
        ("BODY_AT", Define::U32(2)),
        ("WEIGHT_TABLE", Define::U32(256)),
    ],
    wgsl: crate::shader!("iq3_xxs.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, out) in out.iter_mut().enumerate() {
            let signs = word_at(&bytes[66 + j / 32 * 4..]);
            let scale = d * ((signs >> 28) as f32 + 0.5) * 0.5;
            let value = grids::IQ3_XXS.of_four(bytes[2 + j / 4].into(), j % 4);
            *out = scale * value * sign_of_seven(signs >> (7 * (j % 32 / 8)), j % 8);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.003));
    fill(rng, &mut block[2..]);
}
