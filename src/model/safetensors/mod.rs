//! Reads the header of a safetensors file by ranged reads: names, types, shapes and ranges. The tensors' data is not read here.
//! Knows no architecture and no GPU.
//!
//! A `Safetensors` proves that the table is sound: names are unique, each range has the size that shape and type require, and
//! the ranges fill the file without gaps or overlaps, as the format requires.
//!
//! Source: the format's description in the repository huggingface/safetensors (README, "Format").

mod dtype;
mod header;
pub mod index;

pub use dtype::Dtype;
pub(in crate::model) use header::MAX_TENSORS;

use super::source::ByteSource;
use crate::error::{Error, Result};

/// The limit of the reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// A tensor of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Unique in the file.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// In the order of the file: the last is the length of a row. Empty for a single number.
    pub shape: Vec<u64>,
    /// From the start of the file.
    pub offset: u64,
    /// Length in the file.
    pub bytes: u64,
}

/// The header of a safetensors file.
#[derive(Clone, Debug)]
pub struct Safetensors {
    tensors: Vec<TensorEntry>,
    data_offset: u64,
}

impl Safetensors {
    /// Whether a file that starts with these bytes (at least 9) may be of this format.
    pub fn begins(start: &[u8]) -> bool {
        let length = start.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        start.get(8) == Some(&b'{') && length.is_some_and(|length| (2..=MAX_HEADER_BYTES).contains(&length))
    }

    /// Reads and checks the header.
    pub async fn read(source: &dyn ByteSource) -> Result<Self> {
        Self::read_unnamed(source).await.map_err(|error| {
            if error.message().contains(&source.name()) { error } else { error.context(source.name()) }
        })
    }

    async fn read_unnamed(source: &dyn ByteSource) -> Result<Self> {
        let size = source.size();
        if size < 8 {
            bail!(Truncated, "the file has {size} bytes, wanted a safetensors file; download it again");
        }
        let start = source.read(0, size.min(64) as usize).await?;
        let length = u64::from_le_bytes(first_eight(&start)?);
        if length > MAX_HEADER_BYTES || start.get(8).is_some_and(|byte| *byte != b'{') {
            return Err(no_safetensors(&start, length));
        }
        if length > size - 8 {
            bail!(
                Truncated,
                "the file ends after {size} bytes, inside of its header of {length} bytes; it is cut off, download it again"
            );
        }
        // The header fits the file and the limit.
        let header = source.read(8, length as usize).await?;
        let data_offset = 8 + length;
        let tensors = header::parse(&header, data_offset, size)?;
        Ok(Self { tensors, data_offset })
    }

    /// All tensors in the order of their data.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// All tensors in the order of their data, without a copy.
    pub fn into_tensors(self) -> Vec<TensorEntry> {
        self.tensors
    }

    /// Where the tensors' data begins.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }
}

fn first_eight(start: &[u8]) -> Result<[u8; 8]> {
    start.first_chunk().copied().ok_or_else(|| err!(Internal, "a read gave {} bytes instead of 8", start.len()))
}

/// The error for a file that is not safetensors, with a guess at what it is.
fn no_safetensors(start: &[u8], length: u64) -> Error {
    let text = String::from_utf8_lossy(start).trim_start().to_ascii_lowercase();
    let seems = if start.starts_with(b"GGUF") {
        "it is a GGUF file: name it as the model"
    } else if text.starts_with("<!doctype") || text.starts_with("<html") || text.starts_with("<?xml") {
        "it seems to be a web page: check the address (on model hubs, take the download link and not the page)"
    } else if text.starts_with("version https://git-lfs") {
        "it is a pointer of Git LFS and not the file itself: run `git lfs pull`"
    } else if start.starts_with(b"PK\x03\x04") {
        "it seems to be a ZIP archive, perhaps a PyTorch checkpoint: save the model as safetensors"
    } else {
        "check that it is a .safetensors file"
    };
    let first = &start[..start.len().min(9)];
    err!(
        InvalidFile,
        "the file begins with the bytes {first:02x?}, wanted the length of a header (read as {length}, at most \
         {MAX_HEADER_BYTES}) and \"{{\"; {seems}"
    )
}
