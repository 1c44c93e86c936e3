//! Formats of weights in GGUF files, and matrices of them.

use std::fmt;
use std::ops::Range;

use crate::blocks::PIECE;

/// How a file stores weights. Rows are whole blocks, one after the other.
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "the names that files have for them")]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a 32-bit float.
    BF16,
    /// GGML's block of this name, as are those that follow.
    Q4_0,
    /// 4 bits with an offset.
    Q4_1,
    /// 5 bits.
    Q5_0,
    /// 5 bits with an offset.
    Q5_1,
    /// 8 bits.
    Q8_0,
    /// 4 bits with offsets, superblocks of 256.
    Q4_K,
    /// 5 bits with offsets, superblocks of 256.
    Q5_K,
    /// 6 bits, superblocks of 256.
    Q6_K,
    /// Groups with a word each.
    Groups(Groups),
    /// Any other.
    Other(OtherFormat),
}

/// A format whose blocks are groups of columns: quants, and after them a word of 32 bits, from which scale and offset follow. A weight is
/// `scale · quant + offset`.
#[derive(Clone, Copy)]
pub struct Groups {
    /// Weights of a group, a multiple of 32.
    pub columns: usize,
    /// How they are stored.
    pub quants: GroupQuants,
    /// Scale and offset of a word, little-endian. Offsets are those of nibbles and bytes.
    pub scale_and_offset: fn(u32) -> (f32, f32),
}

/// The quants of a group.
#[derive(Clone, Copy)]
pub enum GroupQuants {
    /// From 0 to 15. Of each 32 the first 16 are in the low halves of 16 bytes.
    Nibbles,
    /// int8.
    Bytes,
    /// Floats of eight bits (E4M3).
    Fp8,
    /// Numbers of a table. Their places are stored as nibbles are.
    Codes(&'static [f32; 16]),
}

impl GroupQuants {
    /// Bytes of 32.
    pub(crate) fn piece_bytes(self) -> usize {
        match self {
            Self::Nibbles | Self::Codes(_) => PIECE / 2,
            Self::Bytes | Self::Fp8 => PIECE,
        }
    }
}

/// A format that has no loops of its own: rows are made floats first.
#[derive(Clone, Copy)]
pub struct OtherFormat {
    /// Weights of a block.
    pub block_size: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Makes floats of a block: takes `block_bytes` and gives `block_size`.
    pub dequantize_block: fn(&[u8], &mut [f32]),
}

impl Format {
    /// The format of a `ggml_type`, if it has loops of its own.
    pub fn by_gguf_type(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4_K,
            13 => Self::Q5_K,
            14 => Self::Q6_K,
            30 => Self::BF16,
            _ => return None,
        })
    }

    /// Weights and bytes of a block.
    pub fn block(&self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
            // There are no rows of others.
            Self::Groups(groups) if !groups.columns.is_multiple_of(PIECE) => (0, 0),
            Self::Groups(groups) => (groups.columns, groups.columns / PIECE * groups.quants.piece_bytes() + 4),
            Self::Other(other) => (other.block_size, other.block_bytes),
        }
    }

    /// Bytes of a row of `columns` weights; `None` if they are not whole blocks.
    pub fn row_bytes(&self, columns: usize) -> Option<usize> {
        let (size, bytes) = self.block();
        (size > 0 && columns.is_multiple_of(size)).then(|| columns / size * bytes)
    }
}

/// What a function was given does not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What it is about.
    pub what: &'static str,
    /// The length that it should have.
    pub expected: usize,
    /// The length that it has.
    pub found: usize,
}

/// What a mismatch is about where memory has run out.
const ROOM: &str = "bytes of memory";

impl Mismatch {
    /// There is no room for these bytes.
    pub fn no_room(bytes: usize) -> Self {
        Self { what: ROOM, expected: bytes, found: 0 }
    }

    /// Whether memory has run out.
    pub fn is_no_room(&self) -> bool {
        self.what == ROOM
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_no_room() {
            return write!(f, "there is no room for {} bytes", self.expected);
        }
        write!(f, "{}: {} instead of {}", self.what, self.found, self.expected)
    }
}

impl std::error::Error for Mismatch {}

/// An error unless the lengths agree.
pub(crate) fn expect(what: &'static str, expected: usize, found: usize) -> Result<(), Mismatch> {
    if expected == found { Ok(()) } else { Err(Mismatch { what, expected, found }) }
}

/// A matrix [rows, columns] of weights as in a file.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub(crate) format: Format,
    pub(crate) bytes: &'a [u8],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_bytes: usize,
}

impl<'a> Weights<'a> {
    /// An error if rows are not whole blocks or `bytes` has another length than all rows.
    pub fn new(format: Format, bytes: &'a [u8], rows: usize, columns: usize) -> Result<Self, Mismatch> {
        let row_bytes = format.row_bytes(columns).ok_or(Mismatch {
            what: "columns of whole blocks",
            expected: 0,
            found: columns,
        })?;
        expect("bytes of a matrix", rows.saturating_mul(row_bytes), bytes.len())?;
        Ok(Self { format, bytes, rows, columns, row_bytes })
    }

    /// Some of the rows, such as a thread's share. An error if they are not all there.
    pub fn rows(&self, rows: Range<usize>) -> Result<Self, Mismatch> {
        let range = rows.start.saturating_mul(self.row_bytes)..rows.end.saturating_mul(self.row_bytes);
        let bytes = self.bytes.get(range).filter(|_| rows.start <= rows.end && rows.end <= self.rows);
        let bytes = bytes.ok_or(Mismatch { what: "rows of a matrix", expected: self.rows, found: rows.end })?;
        Ok(Self { bytes, rows: rows.len(), ..*self })
    }

    /// The numbers of rows and of columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }
}
