//! Q8_0: blocks of 32 weights, an f16 scale `d` and 32 signed bytes; weight j is `d · byte j` (GGML's `block_q8_0`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q8_0: Format = Format {
    name: "q8_0",
    gguf_type: Some(8),
    block_size: 32,
    block_bytes: 34,
    unit: 2,
    unit_words: &[16, 1],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q8_0.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("q8_0_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (out, byte) in out.iter_mut().zip(&bytes[2..]) {
            *out = f32::from(*byte as i8) * d;
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.01));
    fill(rng, &mut block[2..]);
}
