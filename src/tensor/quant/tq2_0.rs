//! TQ2_0: superblocks of 256 weights, 64 bytes of two bits each, in the order of Q2_K, and an f16 scale `d`; a weight is `d · (quant − 1)`
//! (GGML's `block_tq2_0`).

use super::q2_k::two_bits;
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static TQ2_0: Format = Format {
    name: "tq2_0",
    gguf_type: Some(35),
    block_size: 256,
    block_bytes: 66,
    unit: 16,
    unit_words: &[32, 1],
    table: Table::None,
    defines: &[
        ("FILE_BYTES", Define::U32(66)),
        ("FILE_WORDS", Define::U32(16)),
        ("FILE_BLOCKS", Define::U32(8)),
        ("FACTOR", Define::Flag),
        ("FACTOR_AT", Define::U32(64)),
        ("BODY_AT", Define::U32(0)),
        ("WEIGHT_TABLE", Define::U32(0)),
    ],
    wgsl: crate::shader!("tq2_0.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(&bytes[64..]);
        for (j, out) in out.iter_mut().enumerate() {
            *out = d * (f32::from(two_bits(bytes, j)) - 1.0);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    fill(rng, &mut block[..64]);
    block[64..].copy_from_slice(&random_scale(rng, 0.3));
}
