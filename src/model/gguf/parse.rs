//! Parses the header of a GGUF file, item by item, from a window of its bytes. It reads nothing itself: if the window ends too
//! early, it says how far it must reach, and parsing resumes at the first incomplete item.
//!
//! Invariants: no allocation is larger than the rest of the file could fill, and no input panics. A length beyond the end of the
//! file is `Code::Truncated`; a length that no real header has is `Code::InvalidFile`.
//!
//! Source: the GGUF specification (ggml, docs/gguf.md).

use std::collections::BTreeSet;

use super::{
    types::GgmlType,
    value::{Array, Metadata, Strings, Value},
};
use crate::error::{Error, Result};

/// Real headers hold a vocabulary with its merges and take up to about 30 MB.
pub(super) const MAX_HEADER_BYTES: u64 = 256 << 20;

const MAGIC: [u8; 4] = *b"GGUF";
/// The shortest entry: a key of one byte and a value of one byte.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// The shortest description of a tensor: a name of one byte and one dimension.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;
/// The specification's limit for keys, also used for names of tensors.
const MAX_NAME_BYTES: u64 = 65535;
const MAX_DIMS: u32 = 4;
const MAX_ARRAY_DEPTH: u32 = 8;
/// These take more memory than bytes of the file, so their numbers are limited: files have hundreds of entries, some thousands of tensors,
/// half a million merges and no nested arrays.
const MAX_ENTRIES: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 17;
const MAX_STRINGS: u64 = 1 << 21;
const MAX_NESTED: u64 = 1 << 16;

/// Why parsing stopped.
pub(super) enum Stop {
    /// The window must reach at least to this offset of the file, which is inside of the file.
    More(u64),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

macro_rules! fail {
    ($code:ident, $($arg:tt)*) => { return Err(Stop::Failed(err!($code, $($arg)*))) };
}

/// A tensor as the header describes it: the offset still counts from the start of the data.
pub(super) struct RawTensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub ty: GgmlType,
    pub relative_offset: u64,
    pub bytes: u64,
}

/// The items parsed so far.
pub(super) struct Header {
    pub version: u32,
    pub metadata: Metadata,
    pub tensors: Vec<RawTensor>,
    /// Where in the file the next item begins; at the end, the length of the header without padding.
    pub parsed_bytes: u64,
    file_size: u64,
    /// How many nested arrays may still come.
    nested: u64,
    counts: Option<Counts>,
    tensor_names: BTreeSet<String>,
}

#[derive(Clone, Copy)]
struct Counts {
    tensors: u64,
    entries: u64,
}

impl Header {
    pub fn new(file_size: u64) -> Self {
        Self {
            version: 0,
            metadata: Metadata::default(),
            tensors: Vec::new(),
            parsed_bytes: 0,
            file_size,
            nested: MAX_NESTED,
            counts: None,
            tensor_names: BTreeSet::new(),
        }
    }

    /// Continues in `window`, whose first byte is the file's byte `parsed_bytes`. `Ok` when the header is complete.
    pub fn advance(&mut self, window: &[u8]) -> Result<(), Stop> {
        let mut cursor =
            Cursor { window, start: self.parsed_bytes, at: 0, file_size: self.file_size, nested: self.nested };
        let counts = match self.counts {
            Some(counts) => counts,
            None => {
                let counts = self.preamble(&mut cursor)?;
                self.counts = Some(counts);
                self.parsed_bytes = cursor.offset();
                counts
            }
        };
        while (self.metadata.len() as u64) < counts.entries {
            self.entry(&mut cursor)?;
            (self.parsed_bytes, self.nested) = (cursor.offset(), cursor.nested);
        }
        while (self.tensors.len() as u64) < counts.tensors {
            let tensor = self.tensor(&mut cursor)?;
            self.tensors.push(tensor);
            self.parsed_bytes = cursor.offset();
        }
        Ok(())
    }

    fn preamble(&mut self, cursor: &mut Cursor<'_>) -> Result<Counts, Stop> {
        // The first bytes decide between "not this format" and "cut off".
        cursor.require(self.file_size.min(MAGIC.len() as u64), "the magic number")?;
        let start = cursor.peek_up_to(MAGIC.len());
        if start == b"FUGG" {
            fail!(UnsupportedGgufVersion, "{BIG_ENDIAN}");
        }
        if !MAGIC.starts_with(start) {
            fail!(NotGguf, "{}", describe_other_format(cursor.peek_up_to(64)));
        }
        cursor.take(MAGIC.len() as u64, "the magic number")?;
        let version = cursor.u32("the version")?;
        if version & 0xffff == 0 && version != 0 {
            fail!(UnsupportedGgufVersion, "{BIG_ENDIAN}");
        }
        if !(2..=3).contains(&version) {
            fail!(
                UnsupportedGgufVersion,
                "the file has GGUF version {version}, wanted 2 or 3; convert the model again with a current llama.cpp"
            );
        }
        self.version = version;
        let tensors = cursor.u64("the number of tensors")?;
        let entries = cursor.u64("the number of metadata entries")?;
        cursor.check_count(entries, MIN_ENTRY_BYTES, MAX_ENTRIES, 8, "metadata entries")?;
        cursor.check_count(tensors, MIN_TENSOR_BYTES, MAX_TENSORS, 16, "tensors")?;
        Ok(Counts { tensors, entries })
    }

    fn entry(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let offset = cursor.offset();
        let key = cursor.name("a metadata key")?;
        let ty = cursor.u32("the type of a metadata value")?;
        let value = cursor.value(&key, ty)?;
        if self.metadata.get(&key).is_some() {
            fail!(InvalidFile, "the metadata key {key:?} stands twice, the second time at byte {offset}");
        }
        self.metadata.insert(key, value);
        Ok(())
    }

    fn tensor(&mut self, cursor: &mut Cursor<'_>) -> Result<RawTensor, Stop> {
        let at = cursor.offset();
        let name = cursor.name("a tensor's name")?;
        let n_dims = cursor.u32("the number of dimensions")?;
        if !(1..=MAX_DIMS).contains(&n_dims) {
            fail!(InvalidFile, "tensor {name:?} at byte {at} has {n_dims} dimensions, wanted 1 to {MAX_DIMS}");
        }
        let mut dims = Vec::with_capacity(n_dims as usize);
        for _ in 0..n_dims {
            dims.push(cursor.u64("a dimension")?);
        }
        if dims.contains(&0) {
            fail!(InvalidFile, "tensor {name:?} at byte {at} has the dimensions {dims:?}, wanted each above 0");
        }
        let id = cursor.u32("the type of a tensor")?;
        let relative_offset = cursor.u64("the offset of a tensor")?;
        let ty = GgmlType::of_tensor(id, &name)?;
        let bytes = ty.tensor_bytes(&name, &dims)?;
        if !self.tensor_names.insert(name.clone()) {
            fail!(InvalidFile, "the tensor {name:?} stands twice, the second time at byte {at}");
        }
        Ok(RawTensor { name, dims, ty, relative_offset, bytes })
    }
}

const BIG_ENDIAN: &str = "the file is big-endian (made for big-endian computers), wanted little-endian; get the \
                          little-endian file, or convert it with gguf_convert_endian.py of llama.cpp";

/// A guess at what a file that is not GGUF is. Often it is the wrong file of a repository, or an error page.
fn describe_other_format(start: &[u8]) -> String {
    let text = String::from_utf8_lossy(start).trim_start().to_ascii_lowercase();
    let seems = if text.starts_with("<!doctype") || text.starts_with("<html") || text.starts_with("<?xml") {
        "it seems to be a web page: check the address (on model hubs, take the download link and not the page)"
    } else if text.starts_with("version https://git-lfs") {
        "it is a pointer of Git LFS and not the file itself: run `git lfs pull`"
    } else if start.starts_with(b"PK\x03\x04") {
        "it seems to be a ZIP archive, perhaps a PyTorch checkpoint: convert the model to GGUF"
    } else if start.get(8..10) == Some(b"{\"") {
        "it seems to be a safetensors file: load its folder or repository, which holds config.json too"
    } else if [b"lmgg", b"fmgg", b"tjgg", b"algg"].iter().any(|magic| start.starts_with(*magic)) {
        "it is a GGML file from before GGUF: convert the model to GGUF"
    } else {
        "check that it is a .gguf file"
    };
    let first = &start[..start.len().min(4)];
    format!("the file begins with the bytes {first:02x?}, wanted {MAGIC:02x?} (\"GGUF\"); {seems}")
}

struct Cursor<'w> {
    window: &'w [u8],
    /// The offset in the file of the window's first byte.
    start: u64,
    at: usize,
    file_size: u64,
    nested: u64,
}

impl<'w> Cursor<'w> {
    fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// Ensures that the next `length` bytes are in the window.
    fn require(&self, length: u64, what: &str) -> Result<(), Stop> {
        if length <= (self.window.len() - self.at) as u64 {
            return Ok(());
        }
        let offset = self.offset();
        if length > MAX_HEADER_BYTES || offset + length > MAX_HEADER_BYTES {
            fail!(
                InvalidFile,
                "{what} at byte {offset} takes {length} bytes, wanted a header of at most {MAX_HEADER_BYTES} bytes"
            );
        }
        let end = offset + length;
        if end > self.file_size {
            fail!(
                Truncated,
                "the file ends after {} bytes, inside of its header: {what} at byte {offset} goes to byte {end}; \
                 download it again",
                self.file_size
            );
        }
        Err(Stop::More(end))
    }

    /// Checks a number of items, `most` or fewer, of at least `min_bytes` each; the number itself is `back` bytes before this place.
    fn check_count(&self, count: u64, min_bytes: u64, most: u64, back: u64, what: &str) -> Result<(), Stop> {
        let offset = self.offset().saturating_sub(back);
        let most = most.min(MAX_HEADER_BYTES / min_bytes);
        match count.checked_mul(min_bytes) {
            Some(bytes) if count <= most => {
                let rest = self.file_size.saturating_sub(self.offset());
                if bytes > rest {
                    fail!(
                        Truncated,
                        "the file ends after {} bytes, but {count} {what}, announced at byte {offset}, take at least \
                         {bytes} bytes more than the {} before them; download it again",
                        self.file_size,
                        self.offset()
                    );
                }
                Ok(())
            }
            _ => fail!(InvalidFile, "the file announces {count} {what} at byte {offset}, wanted at most {most}"),
        }
    }

    fn peek_up_to(&self, length: usize) -> &'w [u8] {
        let rest = &self.window[self.at..];
        &rest[..rest.len().min(length)]
    }

    fn take(&mut self, length: u64, what: &str) -> Result<&'w [u8], Stop> {
        self.require(length, what)?;
        // `require` ensures that it is inside of the window, so it fits usize.
        let bytes = &self.window[self.at..][..length as usize];
        self.at += length as usize;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64, what)?);
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Stop> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Stop> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn string(&mut self, what: &str) -> Result<&'w [u8], Stop> {
        let length = self.u64(what)?;
        self.take(length, what)
    }

    fn utf8(&mut self, what: &str) -> Result<String, Stop> {
        let offset = self.offset();
        let bytes = self.string(what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => fail!(
                InvalidFile,
                "{what} at byte {offset} is not UTF-8 (its byte {} is {:#04x})",
                error.valid_up_to(),
                bytes[error.valid_up_to()]
            ),
        }
    }

    fn name(&mut self, what: &str) -> Result<String, Stop> {
        let offset = self.offset();
        let length = self.u64(what)?;
        if !(1..=MAX_NAME_BYTES).contains(&length) {
            fail!(InvalidFile, "{what} at byte {offset} has {length} bytes, wanted 1 to {MAX_NAME_BYTES}");
        }
        self.at -= 8;
        self.utf8(what)
    }

    fn bool(byte: u8, key: &str, offset: u64) -> Result<bool, Stop> {
        match byte {
            0 => Ok(false),
            1 => Ok(true),
            other => fail!(InvalidFile, "the bool {key:?} at byte {offset} is {other}, wanted 0 or 1"),
        }
    }

    fn value(&mut self, key: &str, ty: u32) -> Result<Value, Stop> {
        let offset = self.offset();
        Ok(match ty {
            0 => Value::U8(u8::from_le_bytes(self.array(key)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(key)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(key)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(key)?)),
            4 => Value::U32(u32::from_le_bytes(self.array(key)?)),
            5 => Value::I32(i32::from_le_bytes(self.array(key)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(key)?)),
            7 => Value::Bool(Self::bool(self.array::<1>(key)?[0], key, offset)?),
            8 => Value::String(self.utf8(key)?),
            9 => Value::Array(self.values(key, 1)?),
            10 => Value::U64(u64::from_le_bytes(self.array(key)?)),
            11 => Value::I64(i64::from_le_bytes(self.array(key)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(key)?)),
            _ => return Err(Self::unknown_type(key, ty, offset)),
        })
    }

    fn unknown_type(key: &str, ty: u32, offset: u64) -> Stop {
        Stop::Failed(err!(
            InvalidFile,
            "the metadata key {key:?} has a value of the type {ty} (before byte {offset}), wanted 0 to 12"
        ))
    }

    /// The elements of an array, after its type and its length.
    fn values(&mut self, key: &str, depth: u32) -> Result<Array, Stop> {
        if depth > MAX_ARRAY_DEPTH {
            fail!(
                InvalidFile,
                "the array {key:?} at byte {} is nested deeper than the {MAX_ARRAY_DEPTH} levels that are read",
                self.offset()
            );
        }
        let ty = self.u32(key)?;
        let count_offset = self.offset();
        let count = self.u64(key)?;
        let min_bytes = match ty {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => 12,
            _ => return Err(Self::unknown_type(key, ty, count_offset)),
        };
        let most = match ty {
            8 => MAX_STRINGS,
            9 => self.nested,
            _ => MAX_HEADER_BYTES,
        };
        self.check_count(count, min_bytes, most, 8, &format!("elements of {key:?}"))?;
        if ty == 9 {
            self.nested -= count;
        }
        // All bytes that are surely needed, at once and before any allocation.
        self.require(count * min_bytes, key)?;

        macro_rules! numbers {
            ($type:ty) => {{
                let bytes = self.take(count * min_bytes, key)?;
                let number = |bytes: &[u8]| {
                    let mut array = [0; size_of::<$type>()];
                    array.copy_from_slice(bytes);
                    <$type>::from_le_bytes(array)
                };
                bytes.chunks_exact(size_of::<$type>()).map(number).collect()
            }};
        }
        Ok(match ty {
            0 => Array::U8(numbers!(u8)),
            1 => Array::I8(numbers!(i8)),
            2 => Array::U16(numbers!(u16)),
            3 => Array::I16(numbers!(i16)),
            4 => Array::U32(numbers!(u32)),
            5 => Array::I32(numbers!(i32)),
            6 => Array::F32(numbers!(f32)),
            7 => {
                let offset = self.offset();
                let bytes = self.take(count, key)?.iter().enumerate();
                Array::Bool(bytes.map(|(i, &byte)| Self::bool(byte, key, offset + i as u64)).collect::<Result<_, _>>()?)
            }
            8 => {
                let mut strings = Strings::with_capacity(count as usize);
                for _ in 0..count {
                    strings.push(self.string(key)?);
                }
                Array::String(strings)
            }
            9 => {
                let mut arrays = Vec::new();
                for _ in 0..count {
                    arrays.push(self.values(key, depth + 1)?);
                }
                Array::Array(arrays)
            }
            10 => Array::U64(numbers!(u64)),
            11 => Array::I64(numbers!(i64)),
            12 => Array::F64(numbers!(f64)),
            _ => return Err(Self::unknown_type(key, ty, count_offset)),
        })
    }
}
