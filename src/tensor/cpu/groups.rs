//! Weights in groups with a word each (`quant/packed`): what the crate's loops need to know of them, and those whose columns belong to groups in
//! any order, for which it has no loops.

use std::ops::Range;

use rillm_cpu_kernels as kernels;

use super::{filled, fits};
use crate::error::Result;
use crate::tensor::quant::Table;
use crate::tensor::quant::packed::{self, Kind, codebook, nibble};
use crate::tensor::{CpuTensor, DType};

/// How the crate names a format whose columns are in the order of their groups.
pub(super) fn format_of(kind: Kind, columns: usize) -> kernels::Format {
    let quants = match kind {
        Kind::Int4 | Kind::Affine4F16 | Kind::Affine4Bf16 | Kind::Ordered4 => kernels::GroupQuants::Nibbles,
        Kind::Int8 | Kind::Uint8 | Kind::Affine8F16 | Kind::Affine8Bf16 | Kind::Ordered8 => kernels::GroupQuants::Bytes,
        Kind::Fp8 => kernels::GroupQuants::Fp8,
        Kind::Nf4 => kernels::GroupQuants::Codes(&codebook::NF4),
        Kind::Fp4 => kernels::GroupQuants::Codes(&codebook::FP4),
    };
    kernels::Format::Groups(kernels::Groups { columns, quants, scale_and_offset: packed::scale_and_offset(kind) })
}

/// Rows that become floats at once.
const TILE_ROWS: usize = 32;

/// A matrix whose columns belong to groups in any order.
pub(super) struct Ordered<'a> {
    /// Its rows.
    bytes: &'a [u8],
    row_bytes: usize,
    /// Of each column its group.
    groups: Vec<u16>,
    /// Columns of a group, and its bytes.
    group: [usize; 2],
    scale_and_offset: fn(u32) -> (f32, f32),
    is_of_bytes: bool,
}

impl<'a> Ordered<'a> {
    /// `None` if the weight is none of these.
    pub(super) fn of(weight: &'a CpuTensor<'_>) -> Result<Option<Self>> {
        let DType::Weight(format) = weight.desc.dtype else { return Ok(None) };
        if !matches!(format.table, Table::Columns) {
            return Ok(None);
        }
        let (rows, columns) = weight.desc.shape.matrix()?;
        let row_bytes = format.row_bytes(columns)?;
        let (Some(kind), Some((bytes, table))) =
            (packed::kind_of(format), weight.bytes()?.split_at_checked(rows * row_bytes))
        else {
            bail!(Internal, "{:?} has {} bytes", weight.desc, weight.bytes()?.len())
        };
        let groups: Vec<u16> = table.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let count = columns / format.block_size;
        if groups.len() != columns || groups.iter().any(|group| usize::from(*group) >= count) {
            bail!(Internal, "{:?} has columns of groups that it has not", weight.desc);
        }
        Ok(Some(Self {
            bytes,
            row_bytes,
            groups,
            group: [format.block_size, format.block_bytes],
            scale_and_offset: packed::scale_and_offset(kind),
            is_of_bytes: kind == Kind::Ordered8,
        }))
    }

    /// Some rows as floats.
    pub(super) fn dequantize(&self, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        let [columns, bytes] = self.group;
        let mut scales = Vec::with_capacity(self.groups.len() / columns);
        for (row, out) in rows.zip(out.chunks_exact_mut(self.groups.len())) {
            let Some(row) = self.bytes.get(row * self.row_bytes..(row + 1) * self.row_bytes) else {
                bail!(Internal, "a matrix without row {row}")
            };
            let parts = || row.chunks_exact(bytes).map(|group| group.split_at(bytes - 4));
            scales.clear();
            scales.extend(parts().map(|(_, word)| {
                let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                (self.scale_and_offset)(word)
            }));
            let all = out.chunks_exact_mut(columns).zip(self.groups.chunks_exact(columns));
            for ((out, groups), (quants, _)) in all.zip(parts()) {
                for (at, (out, group)) in out.iter_mut().zip(groups).enumerate() {
                    let quant =
                        if self.is_of_bytes { f32::from(quants[at] as i8) } else { f32::from(nibble(quants, at)) };
                    let (scale, offset) = scales[usize::from(*group)];
                    *out = quant * scale + offset;
                }
            }
        }
        Ok(())
    }

    /// The products of some rows with tokens' activations, written to `out` [tokens, rows].
    pub(super) fn mat_mul(&self, rows: Range<usize>, tokens: usize, x: &[f32], out: &mut [f32]) -> Result<()> {
        let (columns, all) = (self.groups.len(), rows.len());
        let mut floats = filled(0.0, TILE_ROWS.min(all) * columns)?;
        let mut products = filled(0.0, tokens * TILE_ROWS.min(all))?;
        for first in rows.clone().step_by(TILE_ROWS) {
            let tile = first..rows.end.min(first + TILE_ROWS);
            let (count, at) = (tile.len(), first - rows.start);
            let floats = &mut floats[..count * columns];
            self.dequantize(tile, floats)?;
            let weights = kernels::Weights::new(kernels::Format::F32, bytemuck::cast_slice(floats), count, columns);
            let products = &mut products[..tokens * count];
            fits(kernels::mat_mul(&fits(weights)?, tokens, x, products))?;
            for (out, products) in out.chunks_exact_mut(all).zip(products.chunks_exact(count)) {
                out[at..at + count].copy_from_slice(products);
            }
        }
        Ok(())
    }
}
