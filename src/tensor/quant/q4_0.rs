//! Q4_0: blocks of 32 weights, an f16 scale `d` and 16 bytes of nibbles; weight j is `d · (nibble − 8)`. Byte j holds
//! weight j in its low nibble and weight j + 16 in its high one (GGML's `block_q4_0`).

use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q4_0: Format = Format {
    name: "q4_0",
    gguf_type: Some(2),
    block_size: 32,
    block_bytes: 18,
    unit: 2,
    unit_words: &[8, 1],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q4_0.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("q4_0_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(bytes);
        for (j, byte) in bytes[2..].iter().enumerate() {
            out[j] = (f32::from(byte & 15) - 8.0) * d;
            out[j + 16] = (f32::from(byte >> 4) - 8.0) * d;
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.1));
    fill(rng, &mut block[2..]);
}
