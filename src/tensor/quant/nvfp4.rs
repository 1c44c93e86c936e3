//! NVFP4: blocks of 64 weights, a scale of eight bits for each 16 (E4M3 without a sign) and their floats of four bits (E2M1), eight bytes of
//! which hold the first eight weights in their low halves; a weight is `scale · float` (GGML's `block_nvfp4`). The factor of a tensor stands
//! outside of its blocks.

use super::mxfp4::DOUBLED;
use super::{Format, Int8View, Table, fill};
use crate::gpu::Define;
use crate::tensor::Rng;

pub static NVFP4: Format = Format {
    name: "nvfp4",
    gguf_type: Some(40),
    block_size: 64,
    block_bytes: 36,
    unit: 2,
    unit_words: &[9],
    table: Table::None,
    defines: &[
        ("FILE_BYTES", Define::U32(36)),
        ("FILE_WORDS", Define::U32(9)),
        ("FILE_BLOCKS", Define::U32(2)),
        ("BODY_AT", Define::U32(0)),
        ("WEIGHT_TABLE", Define::U32(0)),
    ],
    wgsl: crate::shader!("nvfp4.wgsl"),
    int8: Some(Int8View { halves: true, offsets: false }),
    repack: crate::shader!("split_repack.wgsl"),
    dequantize_block: |bytes, out| {
        for (j, out) in out.iter_mut().enumerate() {
            let byte = bytes[4 + j / 16 * 8 + j % 8];
            *out = half_of_e4m3(bytes[j / 16]) * f32::from(DOUBLED[usize::from(byte >> (j % 16 / 8 * 4) & 15)]);
        }
    },
};

/// Half of the number, since the floats are doubled. NaN counts as zero.
fn half_of_e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    match exponent {
        _ if byte == 0x7f => 0.0,
        0 => mantissa / 1024.0,
        _ => (8.0 + mantissa) * f32::from_bits((u32::from(exponent) + 116) << 23),
    }
}

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..4].fill_with(|| 20 + rng.below(30) as u8);
    fill(rng, &mut block[4..]);
}
