//! F16: IEEE 754 half precision, 2 bytes a weight.

use super::{Format, Table, f16_at, random_scale};
use crate::tensor::Rng;

pub static F16: Format = Format {
    name: "f16",
    gguf_type: Some(1),
    block_size: 1,
    block_bytes: 2,
    unit: 1,
    unit_words: &[16],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("f16.wgsl"),
    int8: None,
    repack: crate::shader!("f16_repack.wgsl"),
    dequantize_block: |bytes, out| out[0] = f16_at(bytes),
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block.copy_from_slice(&random_scale(rng, 1.0));
}
