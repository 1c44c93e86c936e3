//! Products with weights, and single rows of them.

use std::ops::Range;

use rillm_cpu_kernels as kernels;

use super::groups::{self, Ordered};
use super::{fits, zeros};
use crate::error::Result;
use crate::tensor::quant::{Format, packed::kind_of};
use crate::tensor::{CpuTensor, DType};

/// How the crate names a format.
fn format_of(format: &Format) -> kernels::Format {
    let known = match format.gguf_type {
        Some(id) => kernels::Format::by_gguf_type(id),
        None => kind_of(format).map(|kind| groups::format_of(kind, format.block_size)),
    };
    known.unwrap_or(kernels::Format::Other(kernels::OtherFormat {
        block_size: format.block_size,
        block_bytes: format.block_bytes,
        dequantize_block: format.dequantize_block,
    }))
}

/// Bytes of a matrix where weights are packed for products with activations of 8 bits. `None` if it can't be.
pub fn packed_bytes(format: &Format, rows: usize, columns: usize) -> Option<usize> {
    format.gguf_type.and_then(kernels::Format::by_gguf_type).and_then(|of| kernels::Packed::bytes(of, rows, columns))
}

/// Packs rows of a file to their place in a weight of zeros.
pub fn pack_rows(
    format: &Format,
    bytes: &[u8],
    [rows, columns]: [usize; 2],
    first_row: usize,
    weight: &mut [u8],
) -> Result<()> {
    let rows = fits(kernels::Weights::new(format_of(format), bytes, rows, columns))?;
    fits(kernels::pack(&rows, first_row, weight))
}

fn packed<'a>(weight: &'a CpuTensor<'_>) -> Result<Option<kernels::Packed<'a>>> {
    let DType::Weight(format) = weight.desc.dtype else { return Ok(None) };
    if !weight.is_packed() {
        return Ok(None);
    }
    let (rows, columns) = weight.desc.shape.matrix()?;
    fits(kernels::Packed::new(format_of(format), weight.bytes()?, rows, columns)).map(Some)
}

/// The products of rows with `tokens` activations, by a function that takes whole groups of rows, as packed weights want it: experts' matrices may
/// begin and end within one. `all` is the number of rows of the weight.
fn by_groups(
    rows: Range<usize>,
    all: usize,
    tokens: usize,
    out: &mut [f32],
    multiply: impl FnOnce(Range<usize>, &mut [f32]) -> Result<()>,
) -> Result<()> {
    let first = rows.start / kernels::GROUP * kernels::GROUP;
    let whole = first..rows.end.next_multiple_of(kernels::GROUP).min(all);
    if whole == rows {
        return multiply(rows, out);
    }
    let mut products = zeros(tokens * whole.len())?;
    multiply(whole.clone(), &mut products)?;
    let before = rows.start - first;
    if !rows.is_empty() {
        for (out, products) in out.chunks_exact_mut(rows.len()).zip(products.chunks_exact(whole.len())) {
            out.copy_from_slice(&products[before..before + rows.len()]);
        }
    }
    Ok(())
}

fn weights<'a>(weight: &'a CpuTensor<'_>) -> Result<kernels::Weights<'a>> {
    let DType::Weight(format) = weight.desc.dtype else {
        bail!(DtypeMismatch, "a weight is needed, not {:?}", weight.desc)
    };
    let (rows, columns) = weight.desc.shape.matrix()?;
    fits(kernels::Weights::new(format_of(format), weight.bytes()?, rows, columns))
}

/// The products of tokens' activations [tokens, columns] with all rows of a weight: [tokens, rows].
pub fn linear(weight: &CpuTensor<'_>, x: &[f32]) -> Result<Vec<f32>> {
    let (rows, _) = weight.desc.shape.matrix()?;
    linear_rows(weight, 0..rows, x)
}

/// The products with some of the rows.
pub fn linear_rows(weight: &CpuTensor<'_>, rows: Range<usize>, x: &[f32]) -> Result<Vec<f32>> {
    let (_, columns) = weight.desc.shape.matrix()?;
    let mut out = zeros(x.len().checked_div(columns).unwrap_or(0) * rows.len())?;
    write_linear_rows(weight, rows, x, &mut out)?;
    Ok(out)
}

/// The products with all rows, written to `out` [tokens, rows].
pub fn write_linear(weight: &CpuTensor<'_>, x: &[f32], out: &mut [f32]) -> Result<()> {
    let (rows, columns) = weight.desc.shape.matrix()?;
    if out.len() != x.len().checked_div(columns).unwrap_or(0) * rows {
        bail!(Internal, "{} products of {} activations with {:?}", out.len(), x.len(), weight.desc);
    }
    write_linear_rows(weight, 0..rows, x, out)
}

fn write_linear_rows(weight: &CpuTensor<'_>, rows: Range<usize>, x: &[f32], out: &mut [f32]) -> Result<()> {
    let (_, columns) = weight.desc.shape.matrix()?;
    let tokens = x.len().checked_div(columns).unwrap_or(0);
    if let Some(team) = weight.of_team()? {
        if team.is_packed() {
            return by_groups(rows, team.shape().0, tokens, out, |rows, out| team.multiply(rows, x, out));
        }
        return team.multiply(rows, x, out);
    }
    if let Some(packed) = packed(weight)? {
        let x = fits(kernels::Quantized::new(x, tokens, columns))?;
        return by_groups(rows, packed.shape().0, tokens, out, |rows, out| {
            fits(kernels::mat_mul_packed(&fits(packed.rows(rows))?, &x, out))
        });
    }
    if let Some(ordered) = Ordered::of(weight)? {
        return ordered.mat_mul(rows, tokens, x, out);
    }
    let weights = fits(weights(weight)?.rows(rows))?;
    fits(kernels::mat_mul(&weights, tokens, x, out))
}

/// Rows as floats, one after the other.
pub fn rows(weight: &CpuTensor<'_>, range: Range<usize>, out: &mut [f32]) -> Result<()> {
    let (_, columns) = weight.desc.shape.matrix()?;
    if let (Some(team), DType::Weight(format)) = (weight.of_team()?.filter(|team| !team.is_packed()), weight.desc.dtype)
    {
        // One call in place of one for each row.
        let bytes = team.rows_bytes(range.clone(), format.row_bytes(columns)?)?;
        return fits(kernels::dequantize(
            &fits(kernels::Weights::new(format_of(format), &bytes, range.len(), columns))?,
            out,
        ));
    }
    range.zip(out.chunks_exact_mut(columns)).try_for_each(|(at, out)| row(weight, at, out))
}

/// A row as floats.
pub fn row(weight: &CpuTensor<'_>, row: usize, out: &mut [f32]) -> Result<()> {
    if let Some(team) = weight.of_team()? {
        return team.row(row, out);
    }
    if let Some(packed) = packed(weight)? {
        return fits(packed.dequantize_row(row, out));
    }
    if let Some(ordered) = Ordered::of(weight)? {
        return ordered.dequantize(row..row + 1, out);
    }
    let weights = fits(weights(weight)?.rows(row..row + 1))?;
    fits(kernels::dequantize(&weights, out))
}
