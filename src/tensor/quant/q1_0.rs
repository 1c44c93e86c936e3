//! Q1_0: blocks of 128 weights, an f16 scale `d` and a bit each, which says whether the weight is `d` or `−d` (GGML's `block_q1_0`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static Q1_0: Format = Format {
    name: "q1_0",
    gguf_type: Some(41),
    block_size: 128,
    block_bytes: 18,
    unit: 8,
    unit_words: &[8, 1],
    table: Table::None,
    defines: &[
        ("FILE_BYTES", Define::U32(18)),
        ("FILE_WORDS", Define::U32(4)),
        ("FILE_BLOCKS", Define::U32(4)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(0)),
        ("BODY_AT", Define::U32(2)),
        ("WEIGHT_TABLE", Define::U32(0)),
    ],
    wgsl: crate::shader!("q1_0.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, out) in out.iter_mut().enumerate() {
            *out = if bytes[2 + j / 8] >> (j % 8) & 1 == 1 { d } else { -d };
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.3));
    fill(rng, &mut block[2..]);
}
