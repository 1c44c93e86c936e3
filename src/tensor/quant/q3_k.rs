//! Q3_K: superblocks of 256 weights, 32 bytes of third bits, 64 of the other two, 12 of scales (six bits, for every 16 weights) and an
//! f16 factor `d`; a weight is `d · (scale − 32) · (quant − 4)` (GGML's `block_q3_K`).

use super::q2_k::two_bits;
use super::{Format, Int8View, Table, f16_at, fill, random_scale};
use crate::tensor::Rng;

pub static Q3_K: Format = Format {
    name: "q3_k",
    gguf_type: Some(11),
    block_size: 256,
    block_bytes: 110,
    unit: 16,
    unit_words: &[48, 7],
    table: Table::None,
    defines: &[],
    wgsl: crate::shader!("q3_k.wgsl"),
    int8: Some(Int8View { halves: true, offsets: false }),
    repack: crate::shader!("q3_k_repack.wgsl"),
    dequantize_block: |bytes, out| {
        let d = f16_at(&bytes[108..]);
        let scales = &bytes[96..108];
        for (j, out) in out.iter_mut().enumerate() {
            let quant = two_bits(&bytes[32..96], j) | (bytes[j % 32] >> (j / 32) & 1) << 2;
            // The low four bits of all scales come first, then the high two.
            let s = j / 16;
            let scale = (scales[s % 8] >> (s / 8 * 4) & 15) | (scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
            *out = d * (f32::from(scale) - 32.0) * (f32::from(quant) - 4.0);
        }
    },
};

pub(super) fn random_block(rng: &mut Rng, block: &mut [u8]) {
    fill(rng, &mut block[..108]);
    block[108..].copy_from_slice(&random_scale(rng, 0.01));
}
