//! F32: unquantised, 4 bytes a weight.

use super::{Format, Table};
use crate::tensor::Rng;

pub static F32: Format = Format {
    name: "f32",
    gguf_type: Some(0),
    block_size: 1,
    block_bytes: 4,
    unit: 1,
    unit_words: &[32],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("f32.wgsl"),
    int8: None,
    repack: crate::shader!("f32_repack.wgsl"),
    dequantize_block: |bytes, out| out[0] = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block.copy_from_slice(&rng.signed().to_le_bytes());
}
