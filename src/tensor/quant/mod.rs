//! Formats of weight matrices. One format is one `.rs` and its two `.wgsl` files; this list is the only place that names
//! them all.
//!
//! On the GPU every format is blocks of 32 weights of one row, in SoA: one or two arrays, mostly quants in one and scales in the
//! other, so that invocations with neighbouring blocks read neighbouring words. Together they have as many bytes as in the file, and some
//! formats a table besides, which stands before the blocks of the last array. A
//! row whose length is not a multiple of 32 (only in unquantised formats) is padded with zeros.

mod bf16;
mod f16;
mod f32;
mod grids;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
pub mod packed;
mod q1_0;
mod q2_0;
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
pub mod quantize_reference;
mod tq1_0;
mod tq2_0;

use std::borrow::Cow;
use std::fmt;

use super::Rng;
use crate::error::Result;
use crate::gpu::{BINDING_ALIGNMENT, Define};

/// Weights in a block on the GPU.
pub const BLOCK: usize = 32;

/// A format of weights, in files and on the GPU.
pub struct Format {
    /// The usual name in lower case: `q4_0`.
    pub name: &'static str,
    /// The id of the type in a GGUF file (`ggml_type` in the GGUF specification). `None` for formats of other files.
    pub gguf_type: Option<u32>,
    /// Weights per block in a file.
    pub block_size: usize,
    /// Bytes per block in a file.
    pub block_bytes: usize,
    /// Blocks of 32 weights that share words on the GPU.
    pub unit: usize,
    /// The 32-bit words of a unit in each array. There are at most two arrays, because kernels have few bindings left.
    pub unit_words: &'static [usize],
    /// What stands before the blocks in the last array.
    pub table: Table,
    /// Constants and flags of `wgsl` and `repack`.
    pub defines: &'static [(&'static str, Define)],
    /// The module `"weight"`: binds the arrays at 10, 11 … and defines `load_block(index) -> Block`.
    pub wgsl: &'static str,
    /// The view of blocks as int8, if `wgsl` has one: `load_int8_raw(index) -> Int8Raw` (the words in memory) and
    /// `unpack_int8(raw) -> Int8Weights`. Two functions, so that a kernel can load long before it needs the numbers.
    pub int8: Option<Int8View>,
    /// The kernel that turns a file's bytes (binding 0) into the arrays.
    pub repack: &'static str,
    /// Dequantises one block of a file.
    pub dequantize_block: fn(&[u8], &mut [f32]),
}

/// Words before the blocks in the last array of a matrix.
pub enum Table {
    /// There are none.
    None,
    /// A grid of values, the same in all matrices.
    Shared {
        /// Their number, a multiple of 4.
        words: usize,
        /// Their values.
        values: fn() -> &'static [u32],
    },
    /// Of each column its group (`packed/ordered.wgsl`), which a matrix has for itself.
    Columns,
}

impl Table {
    /// Their number in a matrix of `columns` columns.
    pub fn words(&self, columns: usize) -> usize {
        match self {
            Table::None => 0,
            Table::Shared { words, .. } => *words,
            Table::Columns => 4 + columns / 2,
        }
    }

    /// What they hold where a matrix has nothing of its own: columns in the order of their groups.
    pub(super) fn values(&self, columns: usize, group: usize) -> Cow<'static, [u32]> {
        match self {
            Table::None => Cow::Borrowed(&[]),
            Table::Shared { values, .. } => Cow::Borrowed(values()),
            Table::Columns => {
                let groups: Vec<u16> = (0..columns).map(|column| (column / group) as u16).collect();
                Cow::Owned(Self::of_columns(&groups, group))
            }
        }
    }

    /// The table of columns of these groups, each group as large as the format's.
    pub(super) fn of_columns(groups: &[u16], group: usize) -> Vec<u32> {
        let columns = groups.len();
        let header = [columns / BLOCK, columns / group, Table::Columns.words(columns), 0].map(|number| number as u32);
        header
            .into_iter()
            .chain(groups.chunks(2).map(|pair| packed::halves(pair[0], pair.get(1).copied().unwrap_or(0))))
            .collect()
    }
}

/// What a view has besides an int8 per weight and a scale (`Int8Weights` in `wgsl/int8_block.wgsl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Int8View {
    /// Each half of a block has its own scale and offset.
    pub halves: bool,
    /// An offset is subtracted from the product of scale and int8, which is then not negative.
    pub offsets: bool,
}

impl Int8View {
    /// The flags for kernels that import the format.
    pub(super) fn defines(self) -> impl Iterator<Item = (&'static str, Define)> {
        let flags = [("HALVES", self.halves), ("OFFSETS", self.offsets)];
        flags.into_iter().filter(|flag| flag.1).map(|flag| (flag.0, Define::Flag))
    }
}

macro_rules! formats {
    ($($module:ident: $format:ident,)*) => {
        /// Every format of GGUF files, in the order of their ids. `packed` has those of other files.
        pub const FORMATS: &[&Format] = &[$(&$module::$format,)*];

        /// For each format, in the same order, a function that makes a block of random weights with reasonable scales. It is not a
        /// field of `Format`, so that only tests link it.
        const RANDOM_BLOCKS: &[fn(&mut Rng, &mut [u8])] = &[$($module::random_block,)*];
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
    iq2_xxs: IQ2_XXS,
    iq2_xs: IQ2_XS,
    iq3_xxs: IQ3_XXS,
    iq1_s: IQ1_S,
    iq4_nl: IQ4_NL,
    iq3_s: IQ3_S,
    iq2_s: IQ2_S,
    iq4_xs: IQ4_XS,
    iq1_m: IQ1_M,
    bf16: BF16,
    tq1_0: TQ1_0,
    tq2_0: TQ2_0,
    mxfp4: MXFP4,
    nvfp4: NVFP4,
    q1_0: Q1_0,
    q2_0: Q2_0,
}

/// The formats that cases of products walk. A kernel sees a format as `load_block`, `load_int8_raw` and `unpack_int8`. Of those whose blocks
/// stay as they are in the file one stands for all: the others' functions are held to golden blocks (`tests/gpu/quants.rs`), by every
/// kind of product, and the cases of `embedding` walk them too.
pub(super) fn in_cases() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().copied().filter(|format| format.defines.is_empty() || format.name == "iq2_xs")
}

/// `blocks` blocks of random weights, as in a file.
pub(super) fn random_blocks(format: &Format, blocks: usize, rng: &mut Rng) -> Vec<u8> {
    let number = FORMATS.iter().position(|other| other.name == format.name);
    let mut bytes = vec![0; blocks * format.block_bytes];
    for block in bytes.chunks_exact_mut(format.block_bytes) {
        match number {
            Some(number) => RANDOM_BLOCKS[number](rng, block),
            None => packed::random_block(format, rng, block),
        }
    }
    bytes
}

/// The names of all formats in upper case, for messages.
pub fn supported() -> String {
    FORMATS.iter().map(|format| format.name.to_uppercase()).collect::<Vec<_>>().join(", ")
}

/// The places of a matrix's arrays in its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoaLayout {
    /// Byte offset and size of each array.
    pub arrays: Vec<(u64, u64)>,
    /// Bytes of the buffer, padding between the arrays included.
    pub bytes: u64,
}

impl SoaLayout {
    /// Bytes of the largest array: each is bound alone.
    pub fn largest(&self) -> u64 {
        self.arrays.iter().map(|array| array.1).max().unwrap_or(0)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Format {
    /// The format of a `ggml_type`; `None` if kernels don't support it.
    pub fn by_gguf_type(id: u32) -> Option<&'static Format> {
        FORMATS.iter().copied().find(|format| format.gguf_type == Some(id))
    }

    /// The format of a name in lower case, such as `q4_0`.
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

    /// Whether a matrix of `columns` columns can be split before `row`: no word belongs to both parts.
    pub fn splits_at(&self, row: usize, columns: usize) -> bool {
        (row * columns.div_ceil(BLOCK)).is_multiple_of(self.unit)
    }

    /// Whether weights of this format can be quantised to another on their way to the GPU.
    pub fn quantizes_to(&self, other: &Format) -> bool {
        quantize::kernel(self, other).is_some()
    }

    /// The layout on the GPU of a matrix [rows, columns].
    pub fn soa_layout(&self, rows: usize, columns: usize) -> SoaLayout {
        let table = self.table.words(columns) as u64 * 4;
        let last = self.unit_words.len() - 1;
        let units = (rows as u64 * columns.div_ceil(BLOCK) as u64).div_ceil(self.unit as u64);
        let mut bytes = 0u64;
        let arrays = self
            .unit_words
            .iter()
            .enumerate()
            .map(|(array, words)| {
                let table = if array == last { table } else { 0 };
                let size = (table + units * *words as u64 * 4).next_multiple_of(16);
                let offset = bytes.next_multiple_of(BINDING_ALIGNMENT);
                bytes = offset + size;
                (offset, size)
            })
            .collect();
        SoaLayout { arrays, bytes }
    }

    /// Dequantises whole blocks of a file. An error if `bytes` and `out` have different numbers of blocks.
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

/// A little-endian word at the start of `bytes`.
fn word_at(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A random scale in f16.
fn random_scale(rng: &mut Rng, largest: f32) -> [u8; 2] {
    half::f16::from_f32(rng.signed() * largest).to_le_bytes()
}

/// Random quants.
fn fill(rng: &mut Rng, quants: &mut [u8]) {
    quants.fill_with(|| rng.below(256) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_as_much_on_the_gpu_as_in_the_file() {
        for format in FORMATS {
            assert!((1..=2).contains(&format.unit_words.len()), "{}: arrays", format.name);
            let words: usize = format.unit_words.iter().sum();
            let in_file = format.unit * BLOCK / format.block_size * format.block_bytes;
            assert_eq!(words * 4, in_file, "{}", format.name);
        }
    }
}
