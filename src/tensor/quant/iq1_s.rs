//! IQ1_S: superblocks of 256 weights, an f16 factor `d`, for each eight weights eight bits of an index of a grid, and for each 32 two bytes:
//! three more bits of each index, a scale of three bits, and whether an eighth is subtracted; a weight is
//! `d · (2 · scale + 1) · (number ± ⅛)` (GGML's `block_iq1_s`).

use super::grids;
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static IQ1_S: Format = Format {
    name: "iq1_s",
    gguf_type: Some(19),
    block_size: 256,
    block_bytes: 50,
    unit: 16,
    unit_words: &[24, 1],
    table: Table::Shared { words: 2048, values: || grids::IQ1_S.words() },
    defines: &[
        ("FILE_BYTES", Define::U32(50)),
        ("FILE_WORDS", Define::U32(12)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(0)),
        ("BODY_AT", Define::U32(2)),
        ("WEIGHT_TABLE", Define::U32(2048)),
    ],
    wgsl: crate::shader!("iq1_s.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, out) in out.iter_mut().enumerate() {
            let rest = u32::from(bytes[34 + j / 32 * 2]) | u32::from(bytes[35 + j / 32 * 2]) << 8;
            let index = u32::from(bytes[2 + j / 8]) | (rest >> (j % 32 / 8 * 3) & 7) << 8;
            *out = d * (2 * (rest >> 12 & 7) + 1) as f32 * shifted(index, j % 8, rest >> 15 == 1);
        }
    },
};

/// Number `i` of an entry, -1 to 1, and an eighth more or less.
pub(super) fn shifted(index: u32, i: usize, is_less: bool) -> f32 {
    grids::IQ1_S.digit(index as usize, i) - 1.0 + if is_less { -0.125 } else { 0.125 }
}

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.05));
    fill(rng, &mut block[2..]);
}
