//! Codebooks: quants of four bits are places in a table of 16 numbers, with an f32 scale for each group. NF4 has quantiles of normal numbers
//! (Dettmers et al. 2023, QLoRA, appendix E); FP4 is bitsandbytes' float of four bits, whose largest number is one.

use std::sync::OnceLock;

use super::{Kind, nibble, packed_formats, word_of};
use crate::gpu::Define;
use crate::tensor::quant::{BLOCK, Format, Table};

/// The numbers of NF4, as bitsandbytes has them.
#[rustfmt::skip]
pub const NF4: [f32; 16] = [
    -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
    0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
];

/// Those of FP4: a sign, and then these twelfths.
pub const FP4: [f32; 16] = {
    let magnitudes = [0.0, 0.005_208_333_5, 0.666_666_7, 1.0, 0.333_333_34, 0.5, 0.166_666_67, 0.25];
    let mut numbers = [0.0; 16];
    let mut at = 0;
    while at < 8 {
        numbers[at] = magnitudes[at];
        numbers[at + 8] = -magnitudes[at];
        at += 1;
    }
    numbers
};

fn words(kind: Kind) -> &'static [u32] {
    static WORDS: [OnceLock<Vec<u32>>; 2] = [OnceLock::new(), OnceLock::new()];
    let (place, numbers) = if kind == Kind::Nf4 { (&WORDS[0], NF4) } else { (&WORDS[1], FP4) };
    place.get_or_init(|| numbers.map(f32::to_bits).to_vec())
}

fn dequantize(kind: Kind, block: &[u8], out: &mut [f32]) {
    let (quants, word) = word_of(block);
    let numbers = if kind == Kind::Nf4 { &NF4 } else { &FP4 };
    for (j, out) in out.iter_mut().enumerate() {
        *out = numbers[usize::from(nibble(quants, j))] * f32::from_bits(word);
    }
}

mod nf4 {
    use super::*;
    packed_formats! {
        "codebook.wgsl", None, Table::Shared { words: 16, values: || words(Kind::Nf4) }, 16, dequantize;
        NF4_32 Nf4 "nf4_32" 4 32 [],
        NF4_64 Nf4 "nf4_64" 4 64 [],
    }
}

mod fp4 {
    use super::*;
    packed_formats! {
        "codebook.wgsl", None, Table::Shared { words: 16, values: || words(Kind::Fp4) }, 16, dequantize;
        FP4_32 Fp4 "fp4_32" 4 32 [],
        FP4_64 Fp4 "fp4_64" 4 64 [],
    }
}

pub(super) use fp4::ALL as FP4_FORMATS;
pub(super) use nf4::ALL as NF4_FORMATS;
