//! IQ1_M: superblocks of 256 weights: for each eight weights eight bits of an index of a grid, then half a byte with three more bits of it and
//! whether an eighth is subtracted, and eight bytes of scales, three bits for each 16 weights and four times four of the f16 factor `d`; a
//! weight is `d · (2 · scale + 1) · (number ± ⅛)` (GGML's `block_iq1_m`).

use super::iq1_s::shifted;
use super::{Format, Int8View, Table, f16_at, fill, grids, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static IQ1_M: Format = Format {
    name: "iq1_m",
    gguf_type: Some(29),
    block_size: 256,
    block_bytes: 56,
    unit: 8,
    unit_words: &[14, 0],
    table: Table::Shared { words: 2048, values: || grids::IQ1_S.words() },
    defines: &[
        ("FILE_BYTES", Define::U32(56)),
        ("FILE_WORDS", Define::U32(14)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("BODY_AT", Define::U32(0)),
        ("WEIGHT_TABLE", Define::U32(2048)),
    ],
    wgsl: crate::shader!("iq1_m.wgsl"),
    int8: Some(Int8View { halves: true, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let scales = |at: usize| u16::from_le_bytes([bytes[48 + at * 2], bytes[49 + at * 2]]);
        let d = (0..4).map(|at| scales(at) >> 12 << (4 * at)).sum::<u16>();
        let d = f16_at(&d.to_le_bytes());
        for (j, out) in out.iter_mut().enumerate() {
            let rest = u32::from(bytes[32 + j / 16] >> (j % 16 / 8 * 4));
            let index = u32::from(bytes[j / 8]) | (rest & 7) << 8;
            let scale = scales(j / 64) >> (j % 64 / 16 * 3) & 7;
            *out = d * f32::from(2 * scale + 1) * shifted(index, j % 8, rest >> 3 & 1 == 1);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    fill(rng, block);
    let d = u16::from_le_bytes(random_scale(rng, 0.05));
    for at in 0..4 {
        let high = &mut block[49 + at * 2];
        *high = *high & 15 | ((d >> (4 * at) & 15) as u8) << 4;
    }
}
