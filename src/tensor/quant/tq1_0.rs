//! TQ1_0: superblocks of 256 weights of -1, 0 or 1: 48 bytes of five and 4 bytes of four of them, in base 3, and an f16 scale `d`
//! (GGML's `block_tq1_0`). A byte is such a number of five digits times 256 / 243, rounded up: times a power of 3, modulo 256, it has a digit
//! on top.

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static TQ1_0: Format = Format {
    name: "tq1_0",
    gguf_type: Some(34),
    block_size: 256,
    block_bytes: 54,
    unit: 16,
    unit_words: &[26, 1],
    table: Table::None,
    defines: &[
        ("FILE_BYTES", Define::U32(54)),
        ("FILE_WORDS", Define::U32(13)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(52)),
        ("BODY_AT", Define::U32(0)),
        ("WEIGHT_TABLE", Define::U32(0)),
    ],
    wgsl: crate::shader!("tq1_0.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(&bytes[52..]);
        for (j, out) in out.iter_mut().enumerate() {
            let (byte, digit) = match j {
                0..160 => (j % 32, j / 32),
                160..240 => (32 + j % 16, (j - 160) / 16),
                _ => (48 + j % 4, (j - 240) / 4),
            };
            let top = bytes[byte].wrapping_mul(3u8.pow(digit as u32));
            *out = d * (f32::from((u16::from(top) * 3) >> 8) - 1.0);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    fill(rng, &mut block[..52]);
    block[52..].copy_from_slice(&random_scale(rng, 0.3));
}
