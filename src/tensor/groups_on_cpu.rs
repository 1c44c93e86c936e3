//! How quants of other libraries' files (`quant/packed`) become weights where the device is the CPU: each group of a row has its quants in the
//! order of the GPU, and then its word. Where columns belong to groups in any order, a table of 16 bits a column comes after the last row.

use std::sync::Arc;

use super::cpu::problem;
use super::quant::packed::packing::Packing;
use super::quant::{BLOCK, Format, Table};
use super::{Context, DType, Tensor};
use crate::error::Result;
use crate::gpu::{Binding, BufferSlice, CpuKernel, Lent, Problem, Team};

/// What one dispatch of the GPU's kernel is told (`packing.wgsl`).
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// The row of the matrix that the run's first row becomes.
    pub first_row: usize,
    /// The block of each row with which the run begins, and how many it has.
    pub first_block: usize,
    pub blocks: usize,
    /// The rows that are taken, how many are before them in the file, and how many there are.
    pub rows: usize,
    pub skipped: usize,
    pub all_rows: usize,
}

/// Where the blocks of a weight lie.
#[derive(Clone, Copy)]
struct Places {
    row_bytes: usize,
    group_bytes: usize,
    /// Blocks of a group, and the bytes of one.
    of_group: usize,
    block_bytes: usize,
}

impl Places {
    fn of(format: &Format, columns: usize) -> Result<Self> {
        let of_group = format.block_size / BLOCK;
        Ok(Self {
            row_bytes: format.row_bytes(columns)?,
            group_bytes: format.block_bytes,
            of_group,
            block_bytes: (format.block_bytes - 4) / of_group,
        })
    }

    fn block(&self, row: usize, block: usize) -> std::ops::Range<usize> {
        let first =
            row * self.row_bytes + block / self.of_group * self.group_bytes + block % self.of_group * self.block_bytes;
        first..first + self.block_bytes
    }

    fn word(&self, row: usize, group: usize) -> std::ops::Range<usize> {
        let end = row * self.row_bytes + (group + 1) * self.group_bytes;
        end - 4..end
    }
}

/// Unpacks a run of a file's quants.
struct Unpack {
    packing: Packing,
    places: Places,
    run: Run,
}

impl CpuKernel for Unpack {
    fn run(&self, bound: Vec<Lent<'_>>, _: Option<&Arc<dyn Team>>) -> std::result::Result<(), Problem> {
        self.unpack(bound).map_err(|error| problem("quants of a file", &error))
    }
}

impl Unpack {
    fn unpack(&self, bound: Vec<Lent<'_>>) -> Result<()> {
        let Ok([Lent::Read(file, _), Lent::Write(mut weight)]) = <[Lent<'_>; 2]>::try_from(bound) else {
            bail!(Internal, "quants of a file go to one weight")
        };
        let file: &[u32] = bytemuck::try_cast_slice(&file).map_err(|error| err!(Internal, "packed quants: {error}"))?;
        let (run, weight) = (self.run, weight.bytes_mut());
        let mut unpack = |row: usize, block: usize| {
            let to = self.places.block(run.first_row + row, run.first_block + block);
            let Some(to) = weight.get_mut(to) else { bail!(Internal, "a weight ends before row {row} of a file") };
            match self.quants(file, row, block) {
                Some(quants) => self.store(&quants, to),
                None => bail!(Internal, "a run of packed quants ends before row {row}"),
            }
            Ok(())
        };
        // In the order of the file.
        if self.packing.is_by_columns() {
            (0..run.blocks).try_for_each(|block| (0..run.rows).try_for_each(|row| unpack(row, block)))
        } else {
            (0..run.rows).try_for_each(|row| (0..run.blocks).try_for_each(|block| unpack(row, block)))
        }
    }

    /// The quants of a block in the order of columns; `None` if they are not all there.
    #[inline(always)]
    fn quants(&self, file: &[u32], row: usize, block: usize) -> Option<[u8; BLOCK]> {
        let Run { blocks, skipped, all_rows, .. } = self.run;
        let bits = self.packing.bits();
        // What a block takes in a file.
        let words = BLOCK * bits / 32;
        let mut quants = [0; BLOCK];
        match self.packing {
            Packing::Awq => {
                let file_row = skipped + row;
                let (stride, shift) = (all_rows / 8, (file_row % 8 / 2 + file_row % 2 * 4) * 4);
                for (column, quant) in quants.iter_mut().enumerate() {
                    *quant = (file.get((block * BLOCK + column) * stride + file_row / 8)? >> shift & 15) as u8;
                }
            }
            Packing::ColumnNibbles | Packing::ColumnBytes => {
                for (at, quants) in quants.chunks_exact_mut(32 / bits).enumerate() {
                    split(*file.get((block * words + at) * all_rows + skipped + row)?, bits, quants);
                }
            }
            Packing::Stream2 | Packing::Stream3 | Packing::Stream5 | Packing::Stream6 => {
                let first = (row * blocks + block) * words;
                let file = file.get(first..first + words)?;
                for (at, quant) in quants.iter_mut().enumerate() {
                    let (word, shift) = (at * bits / 32, at * bits % 32);
                    // The last quant ends with the last word.
                    let next = file.get(word + 1).copied().unwrap_or(0);
                    let both = u64::from(file[word]) | u64::from(next) << 32;
                    *quant = (both >> shift) as u8 & ((1 << bits) - 1);
                }
            }
            Packing::Nibbles | Packing::HighNibbles | Packing::Bytes | Packing::UnsignedBytes => {
                let first = (row * blocks + block) * words;
                let file = file.get(first..first + words)?;
                for (word, quants) in file.iter().zip(quants.chunks_exact_mut(32 / bits)) {
                    split(*word, bits, quants);
                }
                if self.packing == Packing::HighNibbles {
                    quants.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
                }
            }
        }
        Some(quants)
    }

    /// Writes a block as the GPU has it.
    #[inline(always)]
    fn store(&self, quants: &[u8; BLOCK], to: &mut [u8]) {
        if self.packing.stored_bits() == 4 {
            for (at, to) in to.iter_mut().enumerate() {
                *to = quants[at] | quants[at + BLOCK / 2] << 4;
            }
            return;
        }
        let flip = if self.packing == Packing::Bytes { 0 } else { 128 };
        for (quant, to) in quants.iter().zip(to) {
            *to = quant ^ flip;
        }
    }
}

/// The quants of a word, the first lowest.
#[inline(always)]
fn split(word: u32, bits: usize, quants: &mut [u8]) {
    for (at, quant) in quants.iter_mut().enumerate() {
        *quant = (word >> (at * bits)) as u8 & (255 >> (8 - bits));
    }
}

/// Writes the words of groups.
struct Words {
    places: Places,
    first_row: usize,
    /// Groups of a row.
    of_row: usize,
    words: Vec<u32>,
}

impl CpuKernel for Words {
    fn run(&self, bound: Vec<Lent<'_>>, _: Option<&Arc<dyn Team>>) -> std::result::Result<(), Problem> {
        let Ok([Lent::Write(mut weight)]) = <[Lent<'_>; 1]>::try_from(bound) else {
            return Err("words of groups go to one weight".to_owned().into());
        };
        let weight = weight.bytes_mut();
        for (row, words) in (self.first_row..).zip(self.words.chunks_exact(self.of_row)) {
            for (group, word) in words.iter().enumerate() {
                let to = weight
                    .get_mut(self.places.word(row, group))
                    .ok_or_else(|| "a weight ends before its groups".to_owned())?;
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
        Ok(())
    }
}

fn format_of(weight: &Tensor) -> Result<(&'static Format, usize, usize)> {
    let DType::Weight(format) = weight.dtype() else {
        bail!(DtypeMismatch, "only weights are taken, not {:?}", weight.desc())
    };
    let (rows, columns) = weight.shape().matrix()?;
    Ok((format, rows, columns))
}

impl Context {
    /// Records that a run of a file's quants becomes blocks of a weight.
    pub(super) fn unpack_on_cpu(&self, packing: Packing, weight: &Tensor, file: BufferSlice, run: Run) -> Result<()> {
        let (format, _, columns) = format_of(weight)?;
        let kernel = Unpack { packing, places: Places::of(format, columns)?, run };
        let bindings = [Binding::Read(0, file), Binding::ReadWrite(1, weight.slice())];
        self.device().dispatch_on_cpu("packed quants", kernel, &bindings)
    }

    /// Records that rows of a weight get the words of their groups, from a row on.
    pub(super) fn write_groups_on_cpu(&self, weight: &Tensor, first_row: usize, words: &[u32]) -> Result<()> {
        let (format, _, columns) = format_of(weight)?;
        let of_row = columns / format.block_size;
        let kernel = Words { places: Places::of(format, columns)?, first_row, of_row, words: words.to_vec() };
        self.device().dispatch_on_cpu("words of groups", kernel, &[Binding::ReadWrite(0, weight.slice())])
    }

    /// Writes which group each column belongs to.
    pub(super) fn write_columns_on_cpu(&self, weight: &Tensor, groups: &[u16]) -> Result<()> {
        let (format, rows, columns) = format_of(weight)?;
        if !matches!(format.table, Table::Columns) || groups.len() != columns {
            bail!(Internal, "{} columns' groups for {:?}", groups.len(), weight.desc());
        }
        let slice = weight.slice();
        let at = slice.offset + (rows * format.row_bytes(columns)?) as u64;
        self.device().write(&slice.buffer, at, bytemuck::cast_slice(groups))
    }
}
