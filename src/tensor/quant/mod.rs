//! Formats of weight matrices. One format is one `.rs` and its two `.wgsl` files; this list is the only place that names
//! them all.
//!
//! On the GPU every format is seen as blocks of 32 weights of one row, laid out in one or two planes: arrays of which
//! neighbouring invocations, which take neighbouring blocks, read side by side. Most formats have their quants in one and
//! their scales in the other. Together they take as many bytes as in the file. A row whose length is not a multiple of 32
//! (only unquantised formats have such) is padded with zeros.

mod bf16;
mod f16;
mod f32;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
pub mod quantize;

use super::Rng;
use crate::error::Result;
use crate::gpu::{BINDING_ALIGNMENT, Define};

/// Weights in a block as kernels see it.
pub const BLOCK: usize = 32;

/// How weights of one kind stand in a file and on the GPU.
pub struct Format {
    /// Lower case, as in the field: `q4_0`.
    pub name: &'static str,
    /// The id of the type in a GGUF file (`ggml_type` in the GGUF specification).
    pub gguf_type: u32,
    /// Weights per block in a file.
    pub block_size: usize,
    /// Bytes per block in a file.
    pub block_bytes: usize,
    /// Blocks of 32 weights that share words on the GPU.
    pub unit: usize,
    /// For each plane (at most two, because kernels have few bindings left), the 32-bit words of a unit.
    pub unit_words: &'static [usize],
    /// The module `"weight"`: binds the planes at 10, 11 … and defines `load_block(index) -> Block`.
    pub wgsl: &'static str,
    /// Whether and how `wgsl` also shows blocks as int8: `load_int8_raw(index) -> Int8Raw` (what memory holds) and
    /// `unpack_int8(raw) -> Int8Weights`. Apart, so that a kernel can load long before it needs the numbers.
    pub int8: Option<Int8View>,
    /// The kernel that turns a file's bytes (binding 0) into the planes.
    pub repack: &'static str,
    /// Dequantises one block of a file.
    pub dequantize_block: fn(&[u8], &mut [f32]),
}

/// What weights are besides an int8 and a scale (`Int8Weights` in `wgsl/int8_block.wgsl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Int8View {
    /// Each 16 of a block have a scale and an offset of their own.
    pub halves: bool,
    /// Something is subtracted from the product of scale and int8, which is then not negative.
    pub offsets: bool,
}

impl Int8View {
    /// For every kernel that imports the format.
    pub(super) fn defines(self) -> impl Iterator<Item = (&'static str, Define)> {
        let flags = [("HALVES", self.halves), ("OFFSETS", self.offsets)];
        flags.into_iter().filter(|flag| flag.1).map(|flag| (flag.0, Define::Flag))
    }
}

macro_rules! formats {
    ($($module:ident: $format:ident,)*) => {
        /// Every format, in the order of their GGUF ids.
        pub const FORMATS: &[&Format] = &[$(&$module::$format,)*];

        /// Of each format, in the same order, what makes a block of random weights with sane scales. It is no field of `Format`, so that
        /// only tests link it.
        const RANDOM_BLOCKS: &[fn(&mut Rng) -> Vec<u8>] = &[$($module::random_block,)*];
    };
}

formats! {
    f32: F32,
    f16: F16,
    q4_0: Q4_0,
    q4_1: Q4_1,
    q5_0: Q5_0,
    q5_1: Q5_1,
    q8_0: Q8_0,
    q2_k: Q2_K,
    q3_k: Q3_K,
    q4_k: Q4_K,
    q5_k: Q5_K,
    q6_k: Q6_K,
    iq4_nl: IQ4_NL,
    iq4_xs: IQ4_XS,
    bf16: BF16,
    mxfp4: MXFP4,
}

/// So many blocks of random weights in a format, as they stand in a file.
pub(super) fn random_blocks(format: &Format, blocks: usize, rng: &mut Rng) -> Vec<u8> {
    let Some(number) = FORMATS.iter().position(|other| other.name == format.name) else { return Vec::new() };
    (0..blocks).flat_map(|_| RANDOM_BLOCKS[number](rng)).collect()
}

/// The names of all formats, as files of models have them, for messages.
pub fn supported() -> String {
    FORMATS.iter().map(|format| format.name.to_uppercase()).collect::<Vec<_>>().join(", ")
}

/// Where the planes of a matrix stand in its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Byte offset and size of each plane.
    pub planes: Vec<(u64, u64)>,
    pub bytes: u64,
}

impl Planes {
    /// Bytes of the largest plane, which is what has to fit a binding.
    pub fn largest(&self) -> u64 {
        self.planes.iter().map(|plane| plane.1).max().unwrap_or(0)
    }
}

impl Format {
    pub fn by_gguf_type(id: u32) -> Option<&'static Format> {
        FORMATS.iter().copied().find(|format| format.gguf_type == id)
    }

    pub fn by_name(name: &str) -> Option<&'static Format> {
        FORMATS.iter().copied().find(|format| format.name == name)
    }

    /// Bytes of a row of `columns` weights in a file.
    pub fn row_bytes(&self, columns: usize) -> Result<usize> {
        if columns == 0 || !columns.is_multiple_of(self.block_size) {
            bail!(
                ShapeMismatch,
                "a row of {columns} weights can't be {}: it needs multiples of {}",
                self.name,
                self.block_size
            );
        }
        Ok(columns / self.block_size * self.block_bytes)
    }

    /// Whether a matrix of so many columns can begin at a row of another: no word belongs to both.
    pub fn splits_at(&self, row: usize, columns: usize) -> bool {
        (row * columns.div_ceil(BLOCK)).is_multiple_of(self.unit)
    }

    /// Whether weights of this format can be made ones of another on their way to the GPU.
    pub fn quantizes_to(&self, other: &Format) -> bool {
        quantize::kernel(self, other).is_some()
    }

    pub fn planes(&self, rows: usize, columns: usize) -> Planes {
        let units = (rows as u64 * columns.div_ceil(BLOCK) as u64).div_ceil(self.unit as u64);
        let mut bytes = 0u64;
        let planes = self
            .unit_words
            .iter()
            .map(|words| {
                let size = (units * *words as u64 * 4).next_multiple_of(16);
                let offset = bytes.next_multiple_of(BINDING_ALIGNMENT);
                bytes = offset + size;
                (offset, size)
            })
            .collect();
        Planes { planes, bytes }
    }

    /// Dequantises whole blocks as they stand in a file.
    pub fn dequantize(&self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        let blocks = out.len() / self.block_size;
        if !out.len().is_multiple_of(self.block_size) || bytes.len() != blocks * self.block_bytes {
            bail!(ShapeMismatch, "{} weights in {} bytes are not whole {} blocks", out.len(), bytes.len(), self.name);
        }
        for (block, out) in bytes.chunks_exact(self.block_bytes).zip(out.chunks_exact_mut(self.block_size)) {
            (self.dequantize_block)(block, out);
        }
        Ok(())
    }
}

/// A little-endian f16 at the start of `bytes`.
fn f16_at(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// A random scale as blocks hold it.
fn random_scale(rng: &mut Rng, largest: f32) -> [u8; 2] {
    half::f16::from_f32(rng.signed() * largest).to_le_bytes()
}

/// Random quants.
fn random_bytes(rng: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.below(256) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_as_much_on_the_gpu_as_in_the_file() {
        for format in FORMATS {
            assert!((1..=2).contains(&format.unit_words.len()), "{}: planes", format.name);
            let words: usize = format.unit_words.iter().sum();
            let in_file = format.unit * BLOCK / format.block_size * format.block_bytes;
            assert_eq!(words * 4, in_file, "{}", format.name);
        }
    }
}
