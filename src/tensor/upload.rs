//! Streams a weight matrix to the GPU: bytes of a file go to a staging buffer in pieces of any length, and a kernel repacks each full
//! run of rows into the arrays of the format.

use super::exec::{FIRST_WEIGHT_ARRAY, PARAMS, grid_2d};
use super::groups_on_cpu::Run;
use super::quant::packed::packing::{self, Packing};
use super::quant::{BLOCK, Format, Table};
use super::{Context, DType, Desc, HostBytes, Shape, Tensor};
use crate::error::Result;
use crate::gpu::{Binding, Buffer, BufferSlice, Shader, Template};

/// The most bytes of the staging buffer. Larger runs save little, and a smaller buffer would not hold two rows of a wide matrix.
const STAGING_BYTES: usize = 8 << 20;

fn format_of(tensor: &Tensor) -> Result<&'static Format> {
    match tensor.dtype() {
        DType::Weight(format) => Ok(format),
        _ => bail!(DtypeMismatch, "only weights are uploaded as such, not {:?}", tensor.desc()),
    }
}

/// A weight matrix, or some of its rows, on the way to the GPU.
pub struct WeightUpload<'a> {
    context: &'a Context,
    job: Job,
    staging: Buffer,
    /// Rows of the file, or runs of 32 columns where it holds the matrix by columns.
    rows: usize,
    columns: usize,
    row_bytes: usize,
    /// Rows in a full run, such that each run begins with a whole unit of the format.
    rows_per_run: usize,
    rows_done: usize,
    /// Bytes of the open run that are in the staging buffer.
    filled: usize,
    /// Up to three bytes that are not in the staging buffer yet, because writes are multiples of 4 bytes.
    carry: Vec<u8>,
}

/// What the bytes are, and where they go.
enum Job {
    /// Blocks of a format, and the tensor's row at which this upload begins.
    Rows { tensor: Tensor, from: &'static Format, first_row: usize },
    /// Quants of another library, and the rows of the matrix in the file.
    Packed { packing: Packing, targets: Vec<TargetRows>, rows: usize },
}

/// Rows of a weight that rows of a file become.
pub struct TargetRows {
    /// The weight.
    pub weight: Tensor,
    /// The first of them.
    pub first_row: usize,
    /// The rows of the file before them.
    pub skipped: usize,
    /// Their number.
    pub rows: usize,
}

impl TargetRows {
    /// Writes the words of these rows' groups, those of a row side by side. The weight is in one of the formats of `quant/packed`.
    pub fn write_groups(&self, context: &Context, words: &[u32]) -> Result<()> {
        let (format, columns) = (format_of(&self.weight)?, self.weight.shape().matrix()?.1);
        let of_row = columns / format.block_size;
        if format.gguf_type.is_some() || words.len() != self.rows * of_row {
            bail!(Internal, "{} words for the groups of {} rows of {:?}", words.len(), self.rows, self.weight.desc());
        }
        if context.device().is_cpu() {
            return context.write_groups_on_cpu(&self.weight, self.first_row, words);
        }
        self.write_words(context, format.table.words(columns) + self.first_row * of_row, words)
    }

    /// Writes which group each column belongs to, for formats that ask for it.
    pub fn write_columns(&self, context: &Context, groups: &[u16]) -> Result<()> {
        let (format, columns) = (format_of(&self.weight)?, self.weight.shape().matrix()?.1);
        if !matches!(format.table, Table::Columns) || groups.len() != columns {
            bail!(Internal, "{} columns' groups for {:?}", groups.len(), self.weight.desc());
        }
        if context.device().is_cpu() {
            return context.write_columns_on_cpu(&self.weight, groups);
        }
        self.write_words(context, 0, &Table::of_columns(groups, format.block_size))
    }

    fn write_words(&self, context: &Context, first: usize, words: &[u32]) -> Result<()> {
        let Some(array) = self.weight.array_slices().pop() else { bail!(Internal, "a weight without arrays") };
        if (first + words.len()) as u64 * 4 > array.size {
            bail!(Internal, "{} words from {first} on in an array of {} bytes", words.len(), array.size);
        }
        context.device().write(&array.buffer, array.offset + first as u64 * 4, bytemuck::cast_slice(words))
    }
}

impl<'a> WeightUpload<'a> {
    /// A new matrix [rows, columns] in the file's own format. An error if its rows are not whole blocks, or if there is no room.
    pub fn new(
        context: &'a Context,
        format: &'static Format,
        rows: usize,
        columns: usize,
        label: &str,
    ) -> Result<Self> {
        // Checked before the allocation.
        format.row_bytes(columns)?;
        let desc = Desc { shape: Shape::from([rows, columns]), dtype: DType::Weight(format) };
        Self::into_rows(context, context.empty(desc, label)?, 0, rows)
    }

    /// Into `rows` rows of an existing weight, from `first_row` on, where the format can be split (`Format::splits_at`).
    pub fn into_rows(context: &'a Context, tensor: Tensor, first_row: usize, rows: usize) -> Result<Self> {
        let format = format_of(&tensor)?;
        Self::quantizing(context, format, tensor, first_row, rows)
    }

    /// The same for bytes of another format, which are quantised to the weight's (`Format::quantizes_to`).
    pub fn quantizing(
        context: &'a Context,
        from: &'static Format,
        tensor: Tensor,
        first_row: usize,
        rows: usize,
    ) -> Result<Self> {
        let format = format_of(&tensor)?;
        if from.name != format.name && !from.quantizes_to(format) {
            bail!(DtypeMismatch, "weights of {} can't be quantised to {}", from.name, format.name);
        }
        let (all_rows, columns) = tensor.shape().matrix()?;
        if first_row + rows > all_rows || !format.splits_at(first_row, columns) {
            bail!(
                ShapeMismatch,
                "rows {first_row} to {} of a weight {}; wanted rows of it, and before them blocks of 32 of a multiple of {}",
                first_row + rows,
                tensor.shape(),
                format.unit
            );
        }
        format.row_bytes(columns)?;
        let row_bytes = from.row_bytes(columns)?;
        // Units are powers of two of at most 16 blocks, so this number of rows has whole units.
        let fewest = (1..=format.unit).find(|rows| format.splits_at(*rows, columns)).unwrap_or(format.unit);
        let rows_per_run = STAGING_BYTES / row_bytes / fewest * fewest;
        if rows_per_run == 0 {
            bail!(AdapterLimits, "a row of {row_bytes} bytes; rows above {} are not read", STAGING_BYTES / fewest);
        }
        Self::begin(context, Job::Rows { tensor, from, first_row }, rows, columns, row_bytes, rows_per_run)
    }

    /// Quants of a matrix of `rows` rows, packed by another library, into rows of weights. The words of their groups are written apart
    /// (`TargetRows`).
    pub fn packed(
        context: &'a Context,
        packing: Packing,
        targets: Vec<TargetRows>,
        rows: usize,
        columns: usize,
    ) -> Result<Self> {
        for target in &targets {
            let format = format_of(&target.weight)?;
            let (all_rows, of_weight) = target.weight.shape().matrix()?;
            let fits = target.first_row + target.rows <= all_rows && target.skipped + target.rows <= rows;
            // Quants and a word for each group.
            let bits = (format.block_bytes - 4) * 8 / format.block_size;
            if !fits || of_weight != columns || format.gguf_type.is_some() || bits != packing.stored_bits() {
                bail!(
                    Internal,
                    "{packing:?} of [{rows}, {columns}] can't become rows {} to {} of {:?}",
                    target.first_row,
                    target.first_row + target.rows,
                    target.weight.desc()
                );
            }
        }
        let (units, unit_bytes) = if packing.is_by_columns() {
            (columns / BLOCK, rows * BLOCK * packing.bits() / 8)
        } else {
            (rows, columns * packing.bits() / 8)
        };
        let per_run = STAGING_BYTES / unit_bytes.max(1);
        if targets.is_empty()
            || units == 0
            || per_run == 0
            || !columns.is_multiple_of(BLOCK)
            || !unit_bytes.is_multiple_of(4)
        {
            bail!(
                ShapeMismatch,
                "a matrix [{rows}, {columns}] of {} bits can't be read packed as {packing:?}",
                packing.bits()
            );
        }
        Self::begin(context, Job::Packed { packing, targets, rows }, units, columns, unit_bytes, per_run)
    }

    fn begin(
        context: &'a Context,
        job: Job,
        rows: usize,
        columns: usize,
        row_bytes: usize,
        rows_per_run: usize,
    ) -> Result<Self> {
        let staging_bytes = (rows * row_bytes).clamp(4, STAGING_BYTES).next_multiple_of(4);
        let staging = context.device().buffer(staging_bytes as u64, "upload")?;
        let carry = Vec::with_capacity(4);
        Ok(Self { context, job, staging, rows, columns, row_bytes, rows_per_run, rows_done: 0, filled: 0, carry })
    }

    /// Bytes that are still missing.
    pub fn missing(&self) -> u64 {
        (self.rows - self.rows_done) as u64 * self.row_bytes as u64 - (self.filled + self.carry.len()) as u64
    }

    /// Writes all of `bytes`.
    pub fn write(&mut self, bytes: &dyn HostBytes) -> Result<()> {
        self.write_range(bytes, 0, bytes.len())
    }

    /// Writes `bytes[start..end]`.
    pub fn write_range(&mut self, bytes: &dyn HostBytes, mut start: usize, end: usize) -> Result<()> {
        if (end - start) as u64 > self.missing() {
            bail!(Internal, "{} bytes for a weight that lacks {}", end - start, self.missing());
        }
        while start < end {
            let run_rows = self.rows_per_run.min(self.rows - self.rows_done);
            let run_bytes = run_rows * self.row_bytes;
            let room = run_bytes - self.filled - self.carry.len();
            let piece_end = end.min(start + room);
            self.stage(bytes, start, piece_end)?;
            start = piece_end;
            if self.filled + self.carry.len() == run_bytes {
                self.finish_run(run_rows)?;
            }
        }
        Ok(())
    }

    /// Puts a piece into the staging buffer in multiples of 4 bytes.
    fn stage(&mut self, bytes: &dyn HostBytes, mut start: usize, end: usize) -> Result<()> {
        let device = self.context.device();
        if !self.carry.is_empty() {
            let wanted = (4 - self.carry.len()).min(end - start);
            let mut few = [0u8; 4];
            bytes.copy_to(start, &mut few[..wanted]);
            self.carry.extend_from_slice(&few[..wanted]);
            start += wanted;
            if self.carry.len() == 4 {
                device.write(&self.staging, self.filled as u64, &self.carry)?;
                self.filled += 4;
                self.carry.clear();
            }
        }
        let whole = (end - start) & !3;
        if whole > 0 {
            bytes.write_to_buffer(start..start + whole, device, &self.staging, self.filled as u64)?;
            self.filled += whole;
            start += whole;
        }
        if start < end {
            let mut rest = vec![0u8; end - start];
            bytes.copy_to(start, &mut rest);
            self.carry.extend_from_slice(&rest);
        }
        Ok(())
    }

    fn finish_run(&mut self, rows: usize) -> Result<()> {
        if !self.carry.is_empty() {
            // Only the matrix's last run can end within a word.
            self.carry.resize(4, 0);
            self.context.device().write(&self.staging, self.filled as u64, &self.carry)?;
            self.carry.clear();
        }
        let size = (rows * self.row_bytes).next_multiple_of(4) as u64;
        let file = BufferSlice { buffer: self.staging.clone(), offset: 0, size };
        let blocks_per_row = self.columns.div_ceil(BLOCK);
        match &self.job {
            Job::Rows { tensor, from, first_row } => {
                let first = (first_row + self.rows_done) * blocks_per_row;
                let params = [first, rows * blocks_per_row, blocks_per_row, self.columns].map(|n| n as u32);
                self.context.repack(tensor, from, file, params)?;
            }
            Job::Packed { packing, targets, rows: all_rows } => {
                for target in targets {
                    // Of packed rows a target takes all that come.
                    let [first_row, first_block, blocks, of_target] = if packing.is_by_columns() {
                        [target.first_row, self.rows_done, rows, target.rows]
                    } else {
                        [target.first_row + self.rows_done, 0, blocks_per_row, rows]
                    };
                    let (skipped, all_rows) = (target.skipped, *all_rows);
                    let run = Run { first_row, first_block, blocks, rows: of_target, skipped, all_rows };
                    unpack(self.context, *packing, &target.weight, &file, run)?;
                }
            }
        }
        self.rows_done += rows;
        self.filled = 0;
        Ok(())
    }

    /// The matrix. `Code::Truncated` if bytes of this upload are missing.
    pub fn finish(self) -> Result<Tensor> {
        if self.missing() > 0 {
            bail!(Truncated, "{} bytes of the weight are missing", self.missing());
        }
        match self.job {
            Job::Rows { tensor, .. } => Ok(tensor),
            Job::Packed { targets, .. } => match targets.into_iter().next() {
                Some(target) => Ok(target.weight),
                None => bail!(Internal, "packed quants for no weight"),
            },
        }
    }
}

/// Records the kernel that unpacks a run of a file's quants.
fn unpack(context: &Context, packing: Packing, weight: &Tensor, file: &BufferSlice, run: Run) -> Result<()> {
    if context.device().is_cpu() {
        return context.unpack_on_cpu(packing, weight, file.clone(), run);
    }
    let Run { first_row, first_block, blocks, rows, skipped, all_rows } = run;
    let (_, columns) = weight.shape().matrix()?;
    let params = [first_row, columns / BLOCK, first_block, blocks, rows, skipped, all_rows, 0].map(|n| n as u32);
    let mut bindings = vec![Binding::Read(0, file.clone())];
    for (array, slice) in weight.array_slices().into_iter().enumerate() {
        bindings.push(Binding::ReadWrite(FIRST_WEIGHT_ARRAY + array as u32, slice));
    }
    bindings.push(Binding::Uniform(PARAMS, bytemuck::cast_slice(&params)));
    let (label, template) = (format!("unpack_{packing:?}"), Template::Static(packing::KERNEL));
    let shader = Shader { label: &label, template, modules: &[], defines: packing.defines() };
    let limit = context.device().capabilities().max_workgroups_per_dimension;
    context.device().dispatch(&shader, &bindings, grid_2d((blocks * rows).div_ceil(64), limit))
}
