//! Products with weights, and single rows of them.

use std::ops::Range;

use rillm_cpu_kernels as kernels;

use super::fits;
use super::groups::{self, Ordered};
use crate::error::Result;
use crate::tensor::quant::{Format, packed};
use crate::tensor::{CpuTensor, DType};

/// How the crate names a format.
fn format_of(format: &Format) -> kernels::Format {
    let known = match format.gguf_type {
        Some(id) => kernels::Format::by_gguf_type(id),
        None => packed::kind_of(format).map(|kind| groups::format_of(kind, format.block_size)),
    };
    known.unwrap_or(kernels::Format::Other(kernels::OtherFormat {
        block_size: format.block_size,
        block_bytes: format.block_bytes,
        dequantize_block: format.dequantize_block,
    }))
}

fn weights<'a>(weight: &'a CpuTensor<'_>) -> Result<kernels::Weights<'a>> {
    let DType::Weight(format) = weight.desc.dtype else {
        bail!(DtypeMismatch, "a weight is needed, not {:?}", weight.desc)
    };
    let (rows, columns) = weight.desc.shape.matrix()?;
    fits(kernels::Weights::new(format_of(format), weight.bytes(), rows, columns))
}

/// The products of tokens' activations [tokens, columns] with all rows of a weight: [tokens, rows].
pub fn linear(weight: &CpuTensor<'_>, x: &[f32]) -> Result<Vec<f32>> {
    let (rows, _) = weight.desc.shape.matrix()?;
    linear_rows(weight, 0..rows, x)
}

/// The products with some of the rows.
pub fn linear_rows(weight: &CpuTensor<'_>, rows: Range<usize>, x: &[f32]) -> Result<Vec<f32>> {
    let (_, columns) = weight.desc.shape.matrix()?;
    let tokens = x.len().checked_div(columns).unwrap_or(0);
    let mut out = vec![0.0; tokens * rows.len()];
    if let Some(ordered) = Ordered::of(weight)? {
        ordered.mat_mul(rows, tokens, x, &mut out)?;
        return Ok(out);
    }
    let weights = fits(weights(weight)?.rows(rows))?;
    fits(kernels::mat_mul(&weights, tokens, x, &mut out))?;
    Ok(out)
}

/// A row as floats.
pub fn row(weight: &CpuTensor<'_>, row: usize, out: &mut [f32]) -> Result<()> {
    if let Some(ordered) = Ordered::of(weight)? {
        return ordered.dequantize(row..row + 1, out);
    }
    let weights = fits(weights(weight)?.rows(row..row + 1))?;
    fits(kernels::dequantize(&weights, out))
}
