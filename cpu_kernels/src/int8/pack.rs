//! Packs weights.

use std::marker::PhantomData;
use std::ops::Range;

use super::records::{Nibbles, NibblesOffset, Record, Signed, UnsignedHalves, UnsignedOffset, float_of};
use crate::blocks::{Block, PIECE, Piece, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, Visitor};
use crate::format::{Format, Mismatch, Weights, expect};

/// Rows of a group.
pub const GROUP: usize = 8;

/// Calls a generic function with the record and, if named, the block of a format. `None` for formats that are not packed.
macro_rules! with_record {
    ($format:expr, $function:ident$(<$($more:ident),+>)?, $argument:expr) => {
        match $format {
            Format::Q4_0 => Some($function::<Nibbles, Q4_0 $(, $($more),+)?>($argument)),
            Format::Q4_1 => Some($function::<NibblesOffset, Q4_1 $(, $($more),+)?>($argument)),
            Format::Q4_K => Some($function::<NibblesOffset, Q4_K $(, $($more),+)?>($argument)),
            Format::Q5_0 => Some($function::<UnsignedOffset, Q5_0 $(, $($more),+)?>($argument)),
            Format::Q5_1 => Some($function::<UnsignedOffset, Q5_1 $(, $($more),+)?>($argument)),
            Format::Q5_K => Some($function::<UnsignedOffset, Q5_K $(, $($more),+)?>($argument)),
            Format::Q6_K => Some($function::<UnsignedHalves, Q6_K $(, $($more),+)?>($argument)),
            Format::Q8_0 => Some($function::<Signed, Q8_0 $(, $($more),+)?>($argument)),
            Format::F32 | Format::F16 | Format::BF16 | Format::Groups(_) | Format::Other(_) => None,
        }
    };
}

/// A matrix [rows, columns] of packed weights.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    pub(super) format: Format,
    pub(super) bytes: &'a [u8],
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Bytes of a group.
    pub(super) group_bytes: usize,
}

impl<'a> Packed<'a> {
    /// Bytes that a matrix takes when it is packed: the last group is as large as the others. `None` if the format is not packed, or rows are
    /// not whole blocks.
    pub fn bytes(format: Format, rows: usize, columns: usize) -> Option<usize> {
        rows.div_ceil(GROUP).checked_mul(Self::group_bytes(format, columns)?)
    }

    fn group_bytes(format: Format, columns: usize) -> Option<usize> {
        format.row_bytes(columns)?;
        Some(columns / PIECE * with_record!(format, record_bytes, ())?)
    }

    /// What `pack` has written. An error if `bytes` has another length.
    pub fn new(format: Format, bytes: &'a [u8], rows: usize, columns: usize) -> Result<Self, Mismatch> {
        let refused = Mismatch { what: "columns of a packed format", expected: 0, found: columns };
        let group_bytes = Self::group_bytes(format, columns).ok_or(refused)?;
        expect("bytes of a packed matrix", rows.div_ceil(GROUP).saturating_mul(group_bytes), bytes.len())?;
        Ok(Self { format, bytes, rows, columns, group_bytes })
    }

    /// Some of the rows, such as a thread's share, from the begin of a group to the end of one or of the matrix. An error otherwise.
    pub fn rows(&self, rows: Range<usize>) -> Result<Self, Mismatch> {
        expect("first row of a group", rows.start / GROUP * GROUP, rows.start)?;
        let ends = rows.end == self.rows || rows.end.is_multiple_of(GROUP);
        let groups = rows.start / GROUP * self.group_bytes..rows.end.div_ceil(GROUP).saturating_mul(self.group_bytes);
        let bytes = self.bytes.get(groups).filter(|_| ends && rows.start <= rows.end && rows.end <= self.rows);
        let bytes = bytes.ok_or(Mismatch { what: "rows of a packed matrix", expected: self.rows, found: rows.end })?;
        Ok(Self { bytes, rows: rows.len(), ..*self })
    }

    /// The numbers of rows and of columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Makes floats of a row, written to `out` [columns], such as of a token's embedding.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) -> Result<(), Mismatch> {
        expect("floats of a row", self.columns, out.len())?;
        if row >= self.rows {
            return Err(Mismatch { what: "row of a packed matrix", expected: self.rows, found: row });
        }
        let group = self.bytes.chunks_exact(self.group_bytes.max(1)).nth(row / GROUP).unwrap_or(&[]);
        with_record!(self.format, restore, (group, row % GROUP, out));
        Ok(())
    }
}

fn record_bytes<R: Record, B: Block>((): ()) -> usize {
    size_of::<R>()
}

fn restore<R: Record, B: Block>((group, row, out): (&[u8], usize, &mut [f32])) {
    for (bytes, out) in group.chunks_exact(size_of::<R>()).zip(out.chunks_exact_mut(PIECE)) {
        let record: R = bytemuck::pod_read_unaligned(bytes);
        for (column, out) in out.iter_mut().enumerate() {
            let scale = float_of(record.scales(column / (PIECE / 2)), row);
            let offset = float_of(record.offsets(), row);
            *out = scale * (record.quant(row, column) - R::ZERO) as f32 + offset;
        }
    }
}

/// Packs rows of a matrix to their place from row `first` on of `packed`, which `Packed::bytes` long was made of zeros for all rows. Rows may
/// come in any order and in any pieces. An error if the format is not packed or the rows end after the last one.
pub fn pack(weights: &Weights<'_>, first: usize, packed: &mut [u8]) -> Result<(), Mismatch> {
    let refused = Mismatch { what: "columns of a packed format", expected: 0, found: weights.columns };
    let group_bytes = Packed::group_bytes(weights.format, weights.columns).ok_or(refused)?;
    let end = first.saturating_add(weights.rows);
    if end.div_ceil(GROUP).saturating_mul(group_bytes) > packed.len() {
        let rows = packed.len().checked_div(group_bytes).unwrap_or_default() * GROUP;
        return Err(Mismatch { what: "last row of a packed matrix", expected: rows, found: end });
    }
    if group_bytes > 0 {
        with_record!(weights.format, pack_rows, (weights, first, group_bytes, packed));
    }
    Ok(())
}

struct Set<'a, R, B> {
    /// Of each piece of the block its record.
    group: &'a mut [R],
    row: usize,
    block: PhantomData<B>,
}

impl<R: Record, B: Block> Visitor for Set<'_, R, B> {
    #[inline(always)]
    fn piece(&mut self, index: usize, mut piece: Piece) {
        // A record without a zero of its own has it in the offset.
        if R::ZERO == 0 && B::ZERO > 0 {
            piece.offset = -f32::from(B::ZERO) * piece.scales[0];
        }
        if let Some(record) = self.group.get_mut(index) {
            record.set(self.row, &piece);
        }
    }
}

fn pack_rows<R: Record, B: Block>((weights, first, group_bytes, packed): (&Weights<'_>, usize, usize, &mut [u8])) {
    for (row, bytes) in (first..).zip(weights.bytes.chunks_exact(weights.row_bytes)) {
        let group = &mut packed[row / GROUP * group_bytes..][..group_bytes];
        let group: &mut [R] = bytemuck::cast_slice_mut(group);
        let blocks: &[B] = bytemuck::cast_slice(bytes);
        for (block, group) in blocks.iter().zip(group.chunks_exact_mut(B::PIECES)) {
            block.visit(&mut Set::<R, B> { group, row: row % GROUP, block: PhantomData });
        }
    }
}

pub(super) use with_record;
