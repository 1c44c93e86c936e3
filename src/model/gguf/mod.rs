//! Reads the header of a GGUF file (versions 2 and 3, little-endian) by ranged reads: metadata and the table of tensors. The tensors' data
//! is not read here; `TensorInfo` has its range for streaming. Knows no architecture, no GPU and no URL.
//!
//! A `Gguf` proves that the table is sound: names are unique, ranges are aligned, lie within the file and don't overlap, and
//! each has the size that its dimensions and type require.

mod parse;
mod split;
mod types;
mod value;

use std::collections::BTreeMap;

pub(crate) use split::{Split, SplitName};
pub use types::GgmlType;
pub use value::{Array, Metadata, Strings, Value};

use self::parse::{Header, RawTensor, Stop};
use super::source::ByteSource;
use crate::error::Result;

/// Enough for the header of a model with a small vocabulary; later reads double.
const FIRST_READ_BYTES: u64 = 256 << 10;
const MAX_READ_BYTES: u64 = 16 << 20;
const DEFAULT_ALIGNMENT: u64 = 32;

/// Where a tensor is and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Unique in the file.
    pub name: String,
    /// In the order of the file: the first is the length of a row, so a matrix [rows, columns] has [columns, rows].
    pub dims: Vec<u64>,
    /// The type of the elements.
    pub ty: GgmlType,
    /// From the start of the file.
    pub offset: u64,
    /// Length in the file.
    pub bytes: u64,
}

impl TensorInfo {
    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product() // reading checked that it does not overflow
    }
}

/// The header of a GGUF file.
#[derive(Clone, Debug)]
pub struct Gguf {
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: BTreeMap<String, usize>,
    alignment: u64,
    header_bytes: u64,
    data_offset: u64,
    split: Option<Split>,
}

impl Gguf {
    /// Reads and checks the header. Reads at most about twice its length from the source.
    pub async fn read(source: &dyn ByteSource) -> Result<Self> {
        let file_size = source.size();
        if file_size == 0 {
            bail!(Truncated, "{}: the file is empty, wanted a GGUF file; download it again", source.name());
        }
        let mut header = Header::new(file_size);
        let mut window = Vec::new();
        let mut next_read = FIRST_READ_BYTES;
        loop {
            let window_start = header.parsed_bytes;
            let wanted_end = match header.advance(&window) {
                Ok(()) => break,
                Err(Stop::Failed(error)) => return Err(error.context(source.name())),
                Err(Stop::More(end)) => end,
            };
            let window_end = window_start + window.len() as u64;
            window.drain(..(header.parsed_bytes - window_start) as usize);
            let read_end = wanted_end.max(window_end + next_read).min(file_size);
            // Fits usize: the parser stays within MAX_HEADER_BYTES, and reads within MAX_READ_BYTES.
            window.append(&mut source.read(window_end, (read_end - window_end) as usize).await?);
            next_read = (next_read * 2).min(MAX_READ_BYTES);
        }
        Self::check(header, file_size).map_err(|error| error.context(source.name()))
    }

    fn check(header: Header, file_size: u64) -> Result<Self> {
        let Header { version, metadata, tensors, parsed_bytes: header_bytes, .. } = header;
        let split = Split::of(&metadata)?;
        let alignment = metadata.optional_u64("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
        // The specification requires a multiple of 8, ggml a power of two. Files of both kinds are accepted.
        if !(alignment.is_power_of_two() || (alignment != 0 && alignment.is_multiple_of(8))) || alignment > 1 << 30 {
            bail!(
                InvalidFile,
                "general.alignment is {alignment}, wanted a power of two or a multiple of 8, at most {}",
                1 << 30
            );
        }
        let data_offset = header_bytes.next_multiple_of(alignment);
        let tensors = tensors
            .into_iter()
            .map(|tensor| place(tensor, data_offset, alignment, file_size))
            .collect::<Result<Vec<_>>>()?;
        check_overlaps(&tensors)?;
        let by_name = tensors.iter().enumerate().map(|(index, tensor)| (tensor.name.clone(), index)).collect();
        Ok(Self { version, metadata, tensors, by_name, alignment, header_bytes, data_offset, split })
    }

    /// Which file of its model this is, if the model is split into several.
    pub fn split(&self) -> Option<Split> {
        self.split
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// All keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All keys and values, without a copy.
    pub fn into_metadata(self) -> Metadata {
        self.metadata
    }

    /// All tensors in the order of the file's table.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).and_then(|&index| self.tensors.get(index))
    }

    /// The alignment of tensors in bytes (`general.alignment`); 32 by default.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The length of the header, without the padding after it.
    pub fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    /// Where the tensors' data begins.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// The sum of the tensors' sizes: the bytes that loading the whole model streams.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum() // the ranges lie in the file and don't overlap
    }
}

fn place(tensor: RawTensor, data_offset: u64, alignment: u64, file_size: u64) -> Result<TensorInfo> {
    let RawTensor { name, dims, ty, relative_offset, bytes } = tensor;
    if !relative_offset.is_multiple_of(alignment) {
        bail!(
            InvalidFile,
            "tensor {name:?} lies at the offset {relative_offset} of the data, wanted a multiple of the alignment \
             {alignment}"
        );
    }
    let offset = data_offset.checked_add(relative_offset);
    let Some((offset, end)) = offset.and_then(|offset| Some((offset, offset.checked_add(bytes)?))) else {
        bail!(
            InvalidFile,
            "tensor {name:?} lies at the offset {relative_offset} of the data and takes {bytes} bytes, which overflows"
        );
    };
    if end > file_size {
        bail!(
            Truncated,
            "the file ends after {file_size} bytes, but tensor {name:?} goes from byte {offset} to byte {end}; it is \
             cut off, download it again"
        );
    }
    Ok(TensorInfo { name, dims, ty, offset, bytes })
}

fn check_overlaps(tensors: &[TensorInfo]) -> Result<()> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        if first.offset + first.bytes > second.offset {
            bail!(
                InvalidFile,
                "the tensors {:?} (bytes {} to {}) and {:?} (from byte {}) overlap",
                first.name,
                first.offset,
                first.offset + first.bytes,
                second.name,
                second.offset
            );
        }
    }
    Ok(())
}
