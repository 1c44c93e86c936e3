//! IQ3_S: superblocks of 256 weights, an f16 factor `d`, for each four weights eight bits of an index of a grid and one more, a sign for each
//! weight, and four bits of scale for each 32; a weight is `d · (2 · scale + 1) · ±number` (GGML's `block_iq3_s`).

use super::grids::{self, sign};
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static IQ3_S: Format = Format {
    name: "iq3_s",
    gguf_type: Some(21),
    block_size: 256,
    block_bytes: 110,
    unit: 16,
    unit_words: &[54, 1],
    table: Table::Shared { words: 512, values: || grids::IQ3_S.words() },
    defines: &[
        ("FILE_BYTES", Define::U32(110)),
        ("FILE_WORDS", Define::U32(27)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(0)),
        ("BODY_AT", Define::U32(2)),
        ("WEIGHT_TABLE", Define::U32(512)),
    ],
    wgsl: crate::shader!("iq3_s.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, out) in out.iter_mut().enumerate() {
            let high = bytes[66 + j / 32] >> (j % 32 / 4) & 1;
            let index = usize::from(bytes[2 + j / 4]) | usize::from(high) << 8;
            let scale = d * f32::from(2 * (bytes[106 + j / 64] >> (j % 64 / 32 * 4) & 15) + 1);
            *out = scale * grids::IQ3_S.of_four(index, j % 4) * sign(bytes[74 + j / 8].into(), j % 8);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.003));
    fill(rng, &mut block[2..]);
}
