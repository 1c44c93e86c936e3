//! Streams a weight matrix to the GPU: bytes of a file go to a staging buffer in pieces of any length, and a kernel repacks each full
//! run of rows into the arrays of the format.

use super::quant::{BLOCK, Format};
use super::{Context, DType, Desc, HostBytes, Shape, Tensor};
use crate::error::Result;
use crate::gpu::{Buffer, BufferSlice};

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
    tensor: Tensor,
    /// The format of the file's bytes.
    from: &'static Format,
    staging: Buffer,
    /// The tensor's row at which this upload begins.
    first_row: usize,
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
        let staging_bytes = (rows * row_bytes).clamp(4, STAGING_BYTES).next_multiple_of(4);
        let staging = context.device().buffer(staging_bytes as u64, "upload")?;
        let carry = Vec::with_capacity(4);
        Ok(Self {
            context,
            tensor,
            from,
            staging,
            first_row,
            rows,
            columns,
            row_bytes,
            rows_per_run,
            rows_done: 0,
            filled: 0,
            carry,
        })
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
        let blocks_per_row = self.columns.div_ceil(BLOCK);
        let params =
            [(self.first_row + self.rows_done) * blocks_per_row, rows * blocks_per_row, blocks_per_row, self.columns]
                .map(|n| n as u32);
        let size = (rows * self.row_bytes).next_multiple_of(4) as u64;
        let file = BufferSlice { buffer: self.staging.clone(), offset: 0, size };
        self.context.repack(&self.tensor, self.from, file, params)?;
        self.rows_done += rows;
        self.filled = 0;
        Ok(())
    }

    /// The matrix. `Code::Truncated` if bytes of this upload are missing.
    pub fn finish(self) -> Result<Tensor> {
        if self.missing() > 0 {
            bail!(Truncated, "{} bytes of the weight are missing", self.missing());
        }
        Ok(self.tensor)
    }
}
