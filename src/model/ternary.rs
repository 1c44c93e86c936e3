//! Packed ternary weights, as BitNet's folders hold them, as blocks of Q4_0, which hold them exactly.

use super::gguf::GgmlType;
use crate::error::Result;
use crate::tensor::quant::Format;

/// Weights in a byte.
pub(super) const IN_BYTE: usize = 4;

/// The factor of ternary weights, from its bytes, as blocks of Q4_0 have it.
pub(super) fn scale(bytes: &[u8], ty: GgmlType) -> Result<half::f16> {
    let Some(format) = Format::by_gguf_type(ty.id()).filter(|format| format.block_size == 1) else {
        bail!(UnsupportedTensorType, "ternary weights have a factor of type {}", ty.name())
    };
    let mut factor = [0f32];
    format.dequantize(bytes, &mut factor)?;
    let scale = half::f16::from_f32(factor[0]);
    if !scale.is_finite() || scale.to_f32() != factor[0] {
        bail!(UnsupportedTensorType, "ternary weights have the factor {}, which is no number in f16", factor[0]);
    }
    Ok(scale)
}

/// Rows of ternary weights as blocks of GGUF's Q4_0, whose halves of bytes are 16 weights apart, 8 for a zero. Rows are a quarter of all apart
/// in a byte.
pub(super) fn as_q4_0(packed: &[u8], columns: usize, rows: std::ops::Range<usize>, scale: half::f16) -> Vec<u8> {
    let of_byte = packed.len() / columns;
    let mut out = Vec::with_capacity(rows.len() * columns / 32 * 18);
    for row in rows {
        let (shift, bytes) = (2 * (row / of_byte), &packed[row % of_byte * columns..][..columns]);
        // From 0, 1 and 2 to 7, 8 and 9.
        let quant = |byte: u8| (byte >> shift & 3) + 7;
        for block in bytes.chunks_exact(32) {
            out.extend(scale.to_le_bytes());
            out.extend((0..16).map(|at| quant(block[at]) | quant(block[at + 16]) << 4));
        }
    }
    out
}
