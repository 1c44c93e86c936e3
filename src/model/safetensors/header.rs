//! The JSON of a safetensors header: an object of tensors by name, checked against the size of the file.
//!
//! Memory is some times the header, whose values are counted before they are read.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{Dtype, TensorEntry};
use crate::error::Result;
use crate::json;

const MAX_NAME_BYTES: usize = 65535;
const MAX_DIMS: usize = 8;
/// Of a tensor's entry, and of all entries: no model has as many tensors, in all of its files.
const VALUES_OF_TENSOR: usize = 8;
pub(in crate::model) const MAX_TENSORS: usize = 1 << 18;

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The entries in the order of the file. A map would lose duplicate names.
struct RawHeader(Vec<(String, RawEntry)>);

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "__metadata__" => drop(map.next_value::<IgnoredAny>()?),
                        _ => entries.push((name, map.next_value()?)),
                    }
                }
                Ok(RawHeader(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The tensors in the order of their data, for a file whose data goes from `data_offset` to `file_size`.
pub(super) fn parse(header: &[u8], data_offset: u64, file_size: u64) -> Result<Vec<TensorEntry>> {
    let RawHeader(entries) = json::check_values(header, MAX_TENSORS * VALUES_OF_TENSOR)
        .and_then(|()| serde_json::from_slice(header))
        .map_err(|error| err!(InvalidFile, "the header does not follow the format: {error}"))?;
    if entries.len() > MAX_TENSORS {
        bail!(InvalidFile, "the header has {} tensors, wanted at most {MAX_TENSORS}", entries.len());
    }
    let mut names = HashSet::with_capacity(entries.len());
    if let Some((name, _)) = entries.iter().find(|(name, _)| !names.insert(name.as_str())) {
        bail!(InvalidFile, "the tensor {name:?} stands twice in the header");
    }
    let mut tensors = entries
        .into_iter()
        .map(|(name, entry)| tensor(name, entry, data_offset, file_size))
        .collect::<Result<Vec<_>>>()?;
    // A tensor without elements has the offset of the next one.
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
    let mut end = data_offset;
    for tensor in &tensors {
        if tensor.offset != end {
            bail!(
                InvalidFile,
                "the tensor {:?} begins at byte {} of the data and the one before it ends at byte {}, wanted no gaps and no overlaps",
                tensor.name,
                tensor.offset - data_offset,
                end - data_offset
            );
        }
        end += tensor.bytes;
    }
    if end != file_size {
        bail!(InvalidFile, "the tensors end at byte {end} and the file at byte {file_size}, wanted equal");
    }
    Ok(tensors)
}

fn tensor(name: String, entry: RawEntry, data_offset: u64, file_size: u64) -> Result<TensorEntry> {
    let RawEntry { dtype, shape, data_offsets: (start, end) } = entry;
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        bail!(InvalidFile, "a tensor's name has {} bytes, wanted 1 to {MAX_NAME_BYTES}", name.len());
    }
    if shape.len() > MAX_DIMS {
        bail!(InvalidFile, "the tensor {name:?} has {} dimensions, wanted at most {MAX_DIMS}", shape.len());
    }
    let Some(dtype) = Dtype::by_name(&dtype) else {
        let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
        bail!(UnsupportedTensorType, "the tensor {name:?} is of the type {dtype:?}, known are {}", known.join(", "));
    };
    let bits = shape.iter().try_fold(dtype.bits(), |product, dim| product.checked_mul(*dim));
    let bytes = bits.filter(|bits| bits.is_multiple_of(8)).map(|bits| bits / 8);
    if end.checked_sub(start).is_none_or(|found| bytes != Some(found)) {
        bail!(
            InvalidFile,
            "the tensor {name:?} has the shape {shape:?} of {} and the bytes {start} to {end}, which don't fit each other",
            dtype.name()
        );
    }
    if data_offset.checked_add(end).is_none_or(|end| end > file_size) {
        bail!(
            Truncated,
            "the file ends after {file_size} bytes, but the tensor {name:?} goes to byte {end} of the data, which begins at byte \
             {data_offset}; it is cut off, download it again"
        );
    }
    Ok(TensorEntry { name, dtype, shape, offset: data_offset + start, bytes: end - start })
}
