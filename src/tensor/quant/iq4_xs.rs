//! IQ4_XS: superblocks of 256 weights, an f16 factor `d`, two bytes of the high two bits of eight scales, four of their low four bits,
//! and for each 32 weights 16 bytes of nibbles as in IQ4_NL; a weight is `d · (scale − 32) · value` (GGML's `block_iq4_xs`).

use super::iq4_nl::dequantize;
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static IQ4_XS: Format = Format {
    name: "iq4_xs",
    gguf_type: Some(23),
    block_size: 256,
    block_bytes: 136,
    unit: 8,
    unit_words: &[32, 2],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("iq4_xs.wgsl"),
    int8: Some(Int8View { halves: false, offsets: false }),
    repack: crate::shader!("iq4_xs_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let (d, high) = (f16_at(bytes), u16::from_le_bytes([bytes[2], bytes[3]]));
        for (block, out) in out.chunks_exact_mut(32).enumerate() {
            let low = bytes[4 + block / 2] >> (block % 2 * 4) & 15;
            let scale = low | ((high >> (block * 2) & 3) as u8) << 4;
            dequantize(d * (f32::from(scale) - 32.0), &bytes[8 + block * 16..][..16], out);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    block[..2].copy_from_slice(&random_scale(rng, 0.0005));
    fill(rng, &mut block[2..]);
}
