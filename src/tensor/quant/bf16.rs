//! BF16: the upper half of an f32, 2 bytes a weight.

use super::{Format, Table};
use crate::tensor::Rng;

pub static BF16: Format = Format {
    name: "bf16",
    gguf_type: Some(30),
    block_size: 1,
    block_bytes: 2,
    unit: 1,
    unit_words: &[16],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("bf16.wgsl"),
    int8: None,
    // The repacking kernel of f16 only reorders halves, so it also serves bf16.
    repack: crate::shader!("f16_repack.wgsl"),
    dequantize_block: |bytes, out| out[0] = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16),
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block.copy_from_slice(&((rng.signed().to_bits() >> 16) as u16).to_le_bytes());
}
