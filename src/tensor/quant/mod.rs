//! Formats of weight matrices. One format is one `.rs` and its two `.wgsl` files; this list is the only place that names
//! them all.
//!
//! On the GPU every format is seen as blocks of 32 weights of one row, laid out in planes: arrays of 16-byte words that
//! neighbouring invocations read side by side. A row whose length is not a multiple of 32 (only unquantised formats have
//! such) is padded with zeros.

mod f16;
mod f32;
mod q4_0;
mod q8_0;

use super::Rng;
use crate::error::Result;
use crate::gpu::BINDING_ALIGNMENT;

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
    /// For each plane, the 32-bit words that two blocks of 32 weights take.
    pub words_per_pair: &'static [usize],
    /// The module `"weight"`: binds the planes at 10, 11 … and defines `load_block(index) -> Block`.
    pub wgsl: &'static str,
    /// Whether `wgsl` also shows blocks as int8 with one scale: `load_int8_raw(index) -> Int8Raw` (what memory holds) and
    /// `unpack_int8(raw) -> Int8Block`. Apart, so that a kernel can load long before it needs the numbers.
    pub has_int8_view: bool,
    /// The kernel that turns a file's bytes (binding 0) into the planes.
    pub repack: &'static str,
    /// Dequantises one block of a file.
    pub dequantize_block: fn(&[u8], &mut [f32]),
    /// A block of random weights with sane scales, for tests.
    pub random_block: fn(&mut Rng) -> Vec<u8>,
}

/// Every format, in the order of their GGUF ids.
pub const FORMATS: &[&Format] = &[&f32::F32, &f16::F16, &q4_0::Q4_0, &q8_0::Q8_0];

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

    pub fn planes(&self, rows: usize, columns: usize) -> Planes {
        let pairs = (rows * columns.div_ceil(BLOCK)).div_ceil(2) as u64;
        let mut bytes = 0u64;
        let planes = self
            .words_per_pair
            .iter()
            .map(|words| {
                let size = (pairs * *words as u64 * 4).next_multiple_of(16);
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
