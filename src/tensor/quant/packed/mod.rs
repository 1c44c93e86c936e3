//! Formats of weights that other libraries quantised (GPTQ, AWQ, compressed-tensors, bitsandbytes, MLX, FP8): quants of four or eight bits, and
//! a word for each group of 32, 64 or 128 of them in a row. GGUF files have no such types.
//!
//! A block, as tests and `dequantize` see it, is a group: its quants as on the GPU, then its word. Models' files hold both apart; `packing.rs`
//! says how.

pub mod codebook;
mod fp8;
mod int_groups;
mod ordered;
pub mod packing;

use int_groups::{pair, scale_and_zero};

use super::Format;
use crate::tensor::Rng;

/// What the word of a group holds. The quants of the formats are in `int_groups.rs`, `ordered.rs`, `fp8.rs` and `codebook.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned quants of four bits; a scale without its lowest eight bits, and the zero point in these.
    Int4,
    /// Signed quants of eight bits; a scale.
    Int8,
    /// Signed quants of eight bits; a scale without its lowest eight bits, and there the zero point and 128.
    Uint8,
    /// Unsigned quants of four bits; a scale and what is added, both f16.
    Affine4F16,
    /// The same, both bf16.
    Affine4Bf16,
    /// Signed quants of eight bits; a scale and what is added to 128 and the quant, times it, both f16.
    Affine8F16,
    /// The same, both bf16.
    Affine8Bf16,
    /// `Int4` where each column has a group of its own choice (GPTQ's `desc_act`).
    Ordered4,
    /// The same of `Uint8`.
    Ordered8,
    /// Floats of eight bits (E4M3); a scale.
    Fp8,
    /// Places in a codebook of 16 numbers, NF4; a scale.
    Nf4,
    /// The same with FP4 of bitsandbytes.
    Fp4,
}

/// The groups that there are formats for, the largest first.
pub const GROUPS: [usize; 3] = [128, 64, 32];

/// The format for groups of this many columns; `None` if there is none.
pub fn of(kind: Kind, group: usize) -> Option<&'static Format> {
    all().find(|(of, format)| *of == kind && format.block_size == group).map(|(_, format)| format)
}

fn all() -> impl Iterator<Item = (Kind, &'static Format)> {
    let lists =
        [int_groups::SIGNED, int_groups::SHIFTED, ordered::ALL, fp8::ALL, codebook::NF4_FORMATS, codebook::FP4_FORMATS];
    lists.into_iter().flatten().copied()
}

/// What the words of a format's groups hold; `None` if it is none of these.
pub(in crate::tensor) fn kind_of(format: &Format) -> Option<Kind> {
    all().find(|(_, other)| *other == format).map(|(kind, _)| kind)
}

/// The scale of a word, and what is added to the products of scale and quant.
pub(in crate::tensor) fn scale_and_offset(kind: Kind) -> fn(u32) -> (f32, f32) {
    match kind {
        Kind::Int4 | Kind::Ordered4 => |word| {
            let (scale, zero) = scale_and_zero(word);
            (scale, -zero * scale)
        },
        Kind::Uint8 | Kind::Ordered8 => |word| {
            let (scale, zero) = scale_and_zero(word);
            (scale, (128.0 - zero) * scale)
        },
        Kind::Affine4F16 => |word| pair(word, false),
        Kind::Affine4Bf16 => |word| pair(word, true),
        Kind::Affine8F16 => |word| moved(pair(word, false)),
        Kind::Affine8Bf16 => |word| moved(pair(word, true)),
        Kind::Int8 | Kind::Fp8 | Kind::Nf4 | Kind::Fp4 => |word| (f32::from_bits(word), 0.0),
    }
}

/// Of quants less 128.
fn moved((scale, summand): (f32, f32)) -> (f32, f32) {
    (scale, 128.0 * scale + summand)
}

/// Every format.
pub fn formats() -> impl Iterator<Item = &'static Format> {
    all().map(|(_, format)| format)
}

/// Defines the formats of a file: for each its kind, its name, the bits of a quant, the columns of a group, and flags of the WGSL.
macro_rules! packed_formats {
    ($wgsl:literal, $int8:expr, $table:expr, $words:literal, $dequantize:expr; $($format:ident $kind:ident $name:literal $bits:literal $group:literal [$($flag:literal),*],)*) => {
        $(static $format: Format = Format {
            name: $name,
            gguf_type: None,
            block_size: $group,
            block_bytes: $group * $bits / 8 + 4,
            unit: $group / BLOCK,
            unit_words: &[$group * $bits / 32, 1],
            table: $table,
            defines: &[
                ("FILE_BYTES", Define::U32($group * $bits / 8 + 4)),
                ("FILE_WORDS", Define::U32($group * $bits / 32)),
                ("FILE_BLOCKS", Define::U32($group / 32)),
                ("BODY_AT", Define::U32(0)),
                ("WEIGHT_TABLE", Define::U32($words)),
                ("WORD", Define::Flag),
                ("WEIGHT_GROUP", Define::U32($group / 32)),
                $(($flag, Define::Flag),)*
            ],
            wgsl: crate::shader!($wgsl),
            int8: $int8,
            repack: crate::shader!("../split_repack.wgsl"),
            dequantize_block: |bytes, out| $dequantize(Kind::$kind, bytes, out),
        };)*
        pub(in crate::tensor::quant::packed) static ALL: &[(Kind, &Format)] = &[$((Kind::$kind, &$format),)*];
    };
}
use packed_formats;

/// The word of a group, after its quants.
fn word_of(block: &[u8]) -> (&[u8], u32) {
    let (quants, word) = block.split_at(block.len().saturating_sub(4));
    (quants, super::word_at(word))
}

/// Nibble of weight `j` of a group: of each 32 the first 16 are in the low halves.
pub(in crate::tensor) fn nibble(quants: &[u8], j: usize) -> u8 {
    quants[j / 32 * 16 + j % 16] >> (j % 32 / 16 * 4) & 15
}

/// A block with a reasonable word.
pub(super) fn random_block(format: &Format, rng: &mut Rng, block: &mut [u8]) {
    let kind = all().find(|(_, other)| other.name == format.name).map_or(Kind::Int8, |(kind, _)| kind);
    let (quants, of_group) = block.split_at_mut(format.block_bytes - 4);
    super::fill(rng, quants);
    if kind == Kind::Fp8 {
        // Without NaN.
        quants.iter_mut().filter(|byte| **byte & 0x7f == 0x7f).for_each(|byte| *byte = 0x3a);
    }
    let scale = rng.signed() * 0.01;
    let zero = rng.below(16) as u32;
    let word = match kind {
        Kind::Int4 | Kind::Ordered4 => half::bf16::from_f32(scale).to_f32().to_bits() | zero,
        Kind::Uint8 | Kind::Ordered8 => half::f16::from_f32(scale).to_f32().to_bits() | (zero * 16),
        Kind::Affine4F16 | Kind::Affine8F16 => {
            halves(half::f16::from_f32(scale).to_bits(), half::f16::from_f32(scale * 7.7).to_bits())
        }
        Kind::Affine4Bf16 | Kind::Affine8Bf16 => {
            halves(half::bf16::from_f32(scale).to_bits(), half::bf16::from_f32(scale * 7.7).to_bits())
        }
        Kind::Int8 | Kind::Fp8 | Kind::Nf4 | Kind::Fp4 => scale.to_bits(),
    };
    of_group.copy_from_slice(&word.to_le_bytes());
}

/// Two halves of a word.
pub fn halves(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}
