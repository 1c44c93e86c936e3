//! IQ2_S: superblocks of 256 weights, an f16 factor `d`, for each eight weights eight bits of an index of a grid, eight signs and two more bits
//! of the index, and four bits of scale for each 16; a weight is `d · (scale + ½) / 4 · ±number` (GGML's `block_iq2_s`).

use super::grids::{self, sign};
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static IQ2_S: Format = Format {
    name: "iq2_s",
    gguf_type: Some(22),
    block_size: 256,
    block_bytes: 82,
    unit: 16,
    unit_words: &[40, 1],
    table: Table::Shared { words: 1024, values: || grids::IQ2_S.words() },
    defines: &[
        ("FILE_BYTES", Define::U32(82)),
        ("FILE_WORDS", Define::U32(20)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(0)),
        ("BODY_AT", Define::U32(2)),
        ("WEIGHT_TABLE", Define::U32(1024)),
    ],
    wgsl: crate::shader!("iq2_s.wgsl"),
    int8: Some(Int8View { halves: true, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, out) in out.iter_mut().enumerate() {
            let high = bytes[66 + j / 32] >> (j % 32 / 8 * 2) & 3;
            let index = usize::from(bytes[2 + j / 8]) | usize::from(high) << 8;
            let scale = d * (f32::from(bytes[74 + j / 32] >> (j % 32 / 16 * 4) & 15) + 0.5) * 0.25;
            *out = scale * grids::IQ2_S.of_eight(index, j % 8) * sign(bytes[34 + j / 8].into(), j % 8);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.005));
    fill(rng, &mut block[2..]);
}
