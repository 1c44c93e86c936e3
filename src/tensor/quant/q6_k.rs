//! Q6_K: superblocks of 256 weights, 128 bytes of low nibbles, 64 of the high two bits, 16 scales of one signed byte (for every 16
//! weights) and an f16 factor `d`; a weight is `d · scale · (quant − 32)` (GGML's `block_q6_K`).

use super::q2_k::two_bits;
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q6_K: Format = Format {
    name: "q6_k",
    gguf_type: Some(14),
    block_size: 256,
    block_bytes: 210,
    unit: 16,
    unit_words: &[96, 9],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q6_k.wgsl"),
    int8: Some(Int8View { halves: true, offsets: false }),
    repack: crate::shader!("q6_k_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(&bytes[208..]);
        for (j, out) in out.iter_mut().enumerate() {
            // Each 64 bytes hold four blocks of 32 weights: two in the low nibbles, then two in the high ones.
            let low = bytes[j / 128 * 64 + j % 64] >> (j % 128 / 64 * 4) & 15;
            let quant = low | two_bits(&bytes[128..192], j) << 4;
            *out = d * f32::from(bytes[192 + j / 16] as i8) * (f32::from(quant) - 32.0);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    fill(rng, &mut block[..208]);
    block[208..].copy_from_slice(&random_scale(rng, 0.0005));
}
