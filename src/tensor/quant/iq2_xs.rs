//! IQ2_XS: superblocks of 256 weights, an f16 factor `d`, for each eight weights two bytes of an index of a grid (nine bits) and seven signs,
//! and four bits of scale for each 16; a weight is `d · (scale + ½) / 4 · ±number` (GGML's `block_iq2_xs`).

use super::grids::{self, sign_of_seven};
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static IQ2_XS: Format = Format {
    name: "iq2_xs",
    gguf_type: Some(17),
    block_size: 256,
    block_bytes: 74,
    unit: 16,
    unit_words: &[36, 1],
    table: Table::Shared { words: 512, values: || grids::IQ2_XS.words() },
    defines: &[
        ("FILE_BYTES", Define::U32(74)),
        ("FILE_WORDS", Define::U32(18)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(0)),
        ("BODY_AT", Define::U32(2)),
        ("WEIGHT_TABLE", Define::U32(512)),
    ],
    wgsl: crate::shader!("iq2_xs.wgsl"),
    int8: Some(Int8View { halves: true, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, out) in out.iter_mut().enumerate() {
            let quant = u32::from(bytes[2 + j / 8 * 2]) | u32::from(bytes[3 + j / 8 * 2]) << 8;
            let scale = d * (f32::from(bytes[66 + j / 32] >> (j % 32 / 16 * 4) & 15) + 0.5) * 0.25;
            *out = scale * grids::IQ2_XS.of_eight(quant as usize & 511, j % 8) * sign_of_seven(quant >> 9, j % 8);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.005));
    fill(rng, &mut block[2..]);
}
