//! Integers of four or eight bits with a scale for each group, and perhaps a zero point or a number that is added.

use super::{Kind, nibble, packed_formats, word_of};
use crate::gpu::Define;
use crate::tensor::quant::{BLOCK, Format, Int8View, Table};

const PLAIN: Option<Int8View> = Some(Int8View { halves: false, offsets: false });
const OFFSETS: Option<Int8View> = Some(Int8View { halves: false, offsets: true });

/// Scale and zero point of a group.
pub(super) fn scale_and_zero(word: u32) -> (f32, f32) {
    (f32::from_bits(word & !255), (word & 255) as f32)
}

/// Scale and summand of a group, of f16 or bf16.
pub(super) fn pair(word: u32, is_bf16: bool) -> (f32, f32) {
    let half =
        |bits: u32| if is_bf16 { f32::from_bits(bits << 16) } else { half::f16::from_bits(bits as u16).to_f32() };
    (half(word & 0xffff), half(word >> 16))
}

pub(super) fn dequantize(kind: Kind, block: &[u8], out: &mut [f32]) {
    let (quants, word) = word_of(block);
    let (scale, zero) = scale_and_zero(word);
    for (j, out) in out.iter_mut().enumerate() {
        let four = || f32::from(nibble(quants, j));
        let eight = || f32::from(quants[j] as i8);
        *out = match kind {
            Kind::Int4 | Kind::Ordered4 => (four() - zero) * scale,
            Kind::Uint8 | Kind::Ordered8 => (eight() - (zero - 128.0)) * scale,
            Kind::Affine4F16 | Kind::Affine4Bf16 => {
                let (scale, summand) = pair(word, kind == Kind::Affine4Bf16);
                four() * scale + summand
            }
            Kind::Affine8F16 | Kind::Affine8Bf16 => {
                let (scale, summand) = pair(word, kind == Kind::Affine8Bf16);
                eight() * scale - (-128.0 * scale - summand)
            }
            _ => eight() * f32::from_bits(word),
        };
    }
}

mod signed {
    use super::*;
    packed_formats! {
        "int_groups.wgsl", PLAIN, Table::None, 0, dequantize;
        INT4_32 Int4 "int4_32" 4 32 ["ZERO_POINT"],
        INT4_64 Int4 "int4_64" 4 64 ["ZERO_POINT"],
        INT4_128 Int4 "int4_128" 4 128 ["ZERO_POINT"],
        INT8_32 Int8 "int8_32" 8 32 ["BITS_8"],
        INT8_64 Int8 "int8_64" 8 64 ["BITS_8"],
        INT8_128 Int8 "int8_128" 8 128 ["BITS_8"],
    }
}

mod shifted {
    use super::*;
    packed_formats! {
        "int_groups.wgsl", OFFSETS, Table::None, 0, dequantize;
        UINT8_32 Uint8 "uint8_32" 8 32 ["BITS_8", "ZERO_POINT", "SIGNED"],
        UINT8_64 Uint8 "uint8_64" 8 64 ["BITS_8", "ZERO_POINT", "SIGNED"],
        UINT8_128 Uint8 "uint8_128" 8 128 ["BITS_8", "ZERO_POINT", "SIGNED"],
        AFFINE4_F16_32 Affine4F16 "affine4_f16_32" 4 32 ["SUMMAND"],
        AFFINE4_F16_64 Affine4F16 "affine4_f16_64" 4 64 ["SUMMAND"],
        AFFINE4_F16_128 Affine4F16 "affine4_f16_128" 4 128 ["SUMMAND"],
        AFFINE4_BF16_32 Affine4Bf16 "affine4_bf16_32" 4 32 ["SUMMAND", "BF16"],
        AFFINE4_BF16_64 Affine4Bf16 "affine4_bf16_64" 4 64 ["SUMMAND", "BF16"],
        AFFINE4_BF16_128 Affine4Bf16 "affine4_bf16_128" 4 128 ["SUMMAND", "BF16"],
        AFFINE8_F16_32 Affine8F16 "affine8_f16_32" 8 32 ["BITS_8", "SUMMAND", "SIGNED"],
        AFFINE8_F16_64 Affine8F16 "affine8_f16_64" 8 64 ["BITS_8", "SUMMAND", "SIGNED"],
        AFFINE8_F16_128 Affine8F16 "affine8_f16_128" 8 128 ["BITS_8", "SUMMAND", "SIGNED"],
        AFFINE8_BF16_32 Affine8Bf16 "affine8_bf16_32" 8 32 ["BITS_8", "SUMMAND", "SIGNED", "BF16"],
        AFFINE8_BF16_64 Affine8Bf16 "affine8_bf16_64" 8 64 ["BITS_8", "SUMMAND", "SIGNED", "BF16"],
        AFFINE8_BF16_128 Affine8Bf16 "affine8_bf16_128" 8 128 ["BITS_8", "SUMMAND", "SIGNED", "BF16"],
    }
}

pub(super) use shifted::ALL as SHIFTED;
pub(super) use signed::ALL as SIGNED;
