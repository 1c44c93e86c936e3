//! Reads the parts of tensors from a stream: matrices go to their places on the GPU, vectors to memory.

use std::collections::HashMap;

use super::arch::WeightTransform;
use super::checkpoint::{Packed, Part, Side, TensorInfo, TensorValues};
use super::group_words::{SideValues, Sides};
use super::matrix::Matrix;
use super::safetensors::Dtype;
use super::tensor_form::{format_of, is_vector, matrix_of};
use super::ternary;
use super::weight_stream::{Progress, WeightStream, sample_of};
use crate::error::Result;
use crate::tensor::quant::Format;
use crate::tensor::{Context, TargetRows, WeightUpload};

/// Where the page is to stay smooth, what is written is handed over in pieces, and this much is read ahead of it.
const BYTES_AHEAD: u64 = 4 << 20;

/// Weights of a block of MXFP4, its bytes without the exponent, and how many are read at once.
const MXFP4_WEIGHTS: usize = 32;
const MXFP4_BYTES: usize = 16;
const MXFP4_BLOCKS: usize = 1 << 17;

/// How many rows of ternary weights are written at once.
const TERNARY_ROWS: usize = 256;

/// A part of a tensor that is being read.
pub(super) struct Piece<'a> {
    pub tensor: &'a TensorInfo,
    pub part: Part,
    /// Which of the tensor's parts.
    pub number: usize,
    pub count: usize,
    /// Bytes of the parts before it.
    pub before: u64,
    pub transform: Option<WeightTransform>,
    /// What it is beside the quants of a packed matrix, and its type.
    pub side: Option<(Side, Dtype)>,
}

/// Where a matrix goes: rows of another matrix, or of its own, from `first_row` on.
pub(super) struct Place {
    pub matrix: Matrix,
    pub first_row: usize,
}

pub(super) type Places = HashMap<String, Place>;

pub(super) enum Loaded {
    Matrix,
    Vector(Vec<f32>),
}

/// Reads parts from the stream.
pub(super) struct Loader<'a> {
    context: &'a Context,
    stream: WeightStream<'a>,
    /// Bytes written since the upload last waited for the GPU.
    in_flight: u64,
    /// The most of them.
    most_in_flight: u64,
    /// What is beside the quants of packed matrices, by tensor and number, until all of it is there.
    sides: HashMap<(String, usize), Vec<SideValues>>,
}

impl<'a> Loader<'a> {
    pub fn new(context: &'a Context, stream: WeightStream<'a>, most_in_flight: u64) -> Self {
        Self { context, stream, in_flight: 0, most_in_flight, sides: HashMap::new() }
    }

    /// Reads a part of a file; matrices go to their places.
    pub async fn load(
        &mut self,
        piece: &Piece<'_>,
        place: Option<&Place>,
        progress: &mut Progress<'_>,
    ) -> Result<Loaded> {
        let Piece { tensor, part, count, before, transform, .. } = *piece;
        let format = format_of(tensor)?;
        self.stream.seek(part, progress).await?;
        if is_vector(tensor) {
            let mut values = vec![0f32; tensor.elements() as usize / count];
            format.dequantize(&self.bytes(part.bytes, progress).await?, &mut values)?;
            match transform {
                None => {}
                Some(WeightTransform::AddOne) => values.iter_mut().for_each(|value| *value += 1.0),
                Some(WeightTransform::NegativeExp) => values.iter_mut().for_each(|value| *value = -value.exp()),
                Some(other) => bail!(Internal, "the transform {other:?} of a vector"),
            }
            return Ok(Loaded::Vector(values));
        }
        let Some(place) = place else { bail!(Internal, "a matrix without a place") };
        if let TensorValues::Packed(packed) = &tensor.values {
            self.load_packed(piece, packed, place, progress).await?;
            return Ok(Loaded::Matrix);
        }
        let (_, columns) = matrix_of(tensor)?;
        if let TensorValues::Mxfp4 { exponents, .. } = &tensor.values {
            let file = self.stream.file(exponents.file)?;
            let exponents = file.read(exponents.offset, exponents.bytes as usize).await?;
            self.load_mxfp4(place, columns, format, &exponents, progress).await?;
            return Ok(Loaded::Matrix);
        }
        if let TensorValues::Ternary { factor, factor_ty, .. } = &tensor.values {
            let file = self.stream.file(factor.file)?;
            let scale = ternary::scale(&file.read(factor.offset, factor.bytes as usize).await?, *factor_ty)?;
            let packed = self.bytes(part.bytes, progress).await?;
            self.load_ternary(place, columns, format, &packed, scale).await?;
            return Ok(Loaded::Matrix);
        }
        let row_bytes = format.row_bytes(columns)? as u64;
        let rows = (part.bytes / row_bytes) as usize;
        let transformed = match transform {
            None => None,
            Some(WeightTransform::Transpose) => {
                Some(transposed(&self.bytes(part.bytes, progress).await?, rows, columns, format)?)
            }
            Some(other) => bail!(Internal, "the transform {other:?} of a matrix"),
        };
        for TargetRows { weight, first_row, skipped, rows: of_target } in
            targets(place, (before / row_bytes) as usize, rows)
        {
            let mut upload = WeightUpload::quantizing(self.context, format, weight, first_row, of_target)?;
            match &transformed {
                Some(bytes) => {
                    let row_bytes = bytes.len() / rows;
                    upload.write_range(bytes, skipped * row_bytes, (skipped + of_target) * row_bytes)?;
                    self.wrote((of_target * row_bytes) as u64).await?;
                }
                None => self.stream_to(&mut upload, progress).await?,
            }
            upload.finish()?;
        }
        Ok(Loaded::Matrix)
    }

    /// Reads a stack of MXFP4 whose blocks come without their exponents, piece by piece.
    async fn load_mxfp4(
        &mut self,
        place: &Place,
        columns: usize,
        format: &'static Format,
        exponents: &[u8],
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let blocks_of_row = columns / MXFP4_WEIGHTS;
        for (first_row, target) in place.matrix.parts() {
            let rows = target.shape().dims()[0];
            let mut upload = WeightUpload::quantizing(self.context, format, target.clone(), 0, rows)?;
            let (mut block, end) = (first_row * blocks_of_row, (first_row + rows) * blocks_of_row);
            while block < end {
                let count = (end - block).min(MXFP4_BLOCKS);
                let bytes = self.bytes((count * MXFP4_BYTES) as u64, progress).await?;
                let Some(exponents) = exponents.get(block..block + count) else {
                    bail!(InvalidFile, "{} scales for the blocks up to {}", exponents.len(), block + count)
                };
                let bytes = mxfp4_blocks(&bytes, exponents);
                upload.write_range(&bytes, 0, bytes.len())?;
                self.wrote(bytes.len() as u64).await?;
                block += count;
            }
            upload.finish()?;
        }
        Ok(())
    }

    /// Writes ternary weights as Q4_0, some rows at a time.
    async fn load_ternary(
        &mut self,
        place: &Place,
        columns: usize,
        format: &'static Format,
        packed: &[u8],
        scale: half::f16,
    ) -> Result<()> {
        let rows = ternary::IN_BYTE * (packed.len() / columns);
        for TargetRows { weight, first_row, skipped, rows } in targets(place, 0, rows) {
            let mut upload = WeightUpload::quantizing(self.context, format, weight, first_row, rows)?;
            let end = skipped + rows;
            for begin in (skipped..end).step_by(TERNARY_ROWS) {
                let bytes = ternary::as_q4_0(packed, columns, begin..(begin + TERNARY_ROWS).min(end), scale);
                upload.write_range(&bytes, 0, bytes.len())?;
                self.wrote(bytes.len() as u64).await?;
            }
            upload.finish()?;
        }
        Ok(())
    }

    /// Reads quants of a packed matrix, or what is beside them.
    async fn load_packed(
        &mut self,
        piece: &Piece<'_>,
        packed: &Packed,
        place: &Place,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let (all_rows, columns) = matrix_of(piece.tensor)?;
        let rows = all_rows / piece.count;
        let targets = || targets(place, piece.number * rows, rows);
        if let Some((side, dtype)) = piece.side {
            let bytes = self.bytes(piece.part.bytes, progress).await?;
            let key = (piece.tensor.name.clone(), piece.number);
            let values = self.sides.entry(key.clone()).or_default();
            values.push(SideValues { side, dtype, bytes });
            let wanted = packed.matrices.get(piece.number).map_or(0, |matrix| matrix.sides.len());
            if values.len() == wanted
                && let Some(values) = self.sides.remove(&key)
            {
                let sides = Sides::new(packed, &values, rows, columns);
                let (words, column_groups) = (sides.words()?, sides.column_groups()?);
                let of_row = columns / packed.format.block_size;
                for target in targets() {
                    let words = words.get(target.skipped * of_row..(target.skipped + target.rows) * of_row);
                    target.write_groups(self.context, words.unwrap_or(&[]))?;
                    if let Some(groups) = &column_groups {
                        target.write_columns(self.context, groups)?;
                    }
                }
                self.wrote(words.len() as u64 * 4).await?;
            }
            return Ok(());
        }
        let uploads = if packed.packing.is_by_columns() {
            vec![targets()]
        } else {
            targets().into_iter().map(|target| vec![target]).collect()
        };
        for targets in uploads {
            // Of rows that lie side by side a target takes its own alone.
            let rows = if packed.packing.is_by_columns() { rows } else { targets.iter().map(|it| it.rows).sum() };
            let targets = targets.into_iter().map(|target| TargetRows {
                skipped: if packed.packing.is_by_columns() { target.skipped } else { 0 },
                ..target
            });
            let mut upload = WeightUpload::packed(self.context, packed.packing, targets.collect(), rows, columns)?;
            self.stream_to(&mut upload, progress).await?;
            upload.finish()?;
        }
        Ok(())
    }

    /// What a part that was loaded adds to the fingerprint.
    pub fn sample(&self, piece: &Piece<'_>) -> u64 {
        let side = piece.side.map(|(side, _)| side as u8);
        sample_of(&piece.tensor.name, piece.number, side, self.stream.sample())
    }

    /// Reads as many bytes from the stream as an upload needs.
    async fn stream_to(&mut self, upload: &mut WeightUpload<'_>, progress: &mut Progress<'_>) -> Result<()> {
        while upload.missing() > 0 {
            let mut some = upload.missing().min(self.most_in_flight - self.in_flight);
            if self.context.device().is_paced() {
                some = some.min(BYTES_AHEAD);
            }
            self.stream.take(some, progress, &mut |chunk, start, end| upload.write_range(&**chunk, start, end)).await?;
            self.wrote(some).await?;
        }
        Ok(())
    }

    /// Counts bytes that were written. Waits until they are handed over if the page is to stay smooth, and for the GPU if much is in flight.
    async fn wrote(&mut self, bytes: u64) -> Result<()> {
        let device = self.context.device();
        if device.is_paced() {
            device.submitted();
            device.sent().await;
        }
        self.in_flight += bytes;
        if self.in_flight >= self.most_in_flight {
            self.in_flight = 0;
            device.sync().await?;
        }
        Ok(())
    }

    /// The next bytes, in memory.
    async fn bytes(&mut self, length: u64, progress: &mut Progress<'_>) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length as usize);
        self.stream
            .take(length, progress, &mut |chunk, start, end| {
                let at = bytes.len();
                bytes.resize(at + end - start, 0);
                chunk.copy_to(start, &mut bytes[at..]);
                Ok(())
            })
            .await?;
        Ok(bytes)
    }
}

/// The rows of a place that rows of a file become.
fn targets(place: &Place, skipped: usize, rows: usize) -> Vec<TargetRows> {
    let (first, end) = (place.first_row + skipped, place.first_row + skipped + rows);
    let mut targets = Vec::new();
    for (part_start, weight) in place.matrix.parts() {
        let (from, to) = (first.max(part_start), end.min(part_start + weight.shape().dims()[0]));
        if from < to {
            let weight = weight.clone();
            targets.push(TargetRows { weight, first_row: from - part_start, skipped: from - first, rows: to - from });
        }
    }
    targets
}

/// Blocks of GGUF's MXFP4: an exponent, then 16 bytes whose lower halves are the first weights. In the folder's, each byte has two neighbours.
fn mxfp4_blocks(pairs: &[u8], exponents: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(exponents.len() * (MXFP4_BYTES + 1));
    for (pairs, exponent) in pairs.chunks_exact(MXFP4_BYTES).zip(exponents) {
        out.push(*exponent);
        let weight = |at: usize| pairs[at / 2] >> (4 * (at % 2)) & 15;
        out.extend((0..MXFP4_BYTES).map(|at| weight(at) | weight(at + MXFP4_BYTES) << 4));
    }
    out
}

/// The elements of a matrix [columns, rows] as one of [rows, columns].
fn transposed(bytes: &[u8], rows: usize, columns: usize, format: &Format) -> Result<Vec<u8>> {
    let width = format.block_bytes;
    if format.block_size != 1 || bytes.len() != rows * columns * width {
        bail!(UnsupportedTensorType, "a matrix of type {} can't be transposed", format.name);
    }
    let mut out = Vec::with_capacity(bytes.len());
    for row in 0..rows {
        for column in 0..columns {
            out.extend_from_slice(&bytes[(column * rows + row) * width..][..width]);
        }
    }
    Ok(out)
}
