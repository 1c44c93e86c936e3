//! What is sorted and in which order, and the kernel that sorts what fits a workgroup. Shared by the ops that sort.

use std::cmp::Ordering;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::fits_u32;
use crate::tensor::{DType, Desc, HostTensor, Kernel};

/// The numbers that are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// f32. As in PyTorch NaN is larger than every number, and −0 equals 0.
    F32,
    /// i32, in the words of a u32 tensor.
    I32,
    /// u32.
    U32,
}

impl SortKey {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::F32, Self::I32, Self::U32];

    /// The dtype of the tensor that holds them.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::I32 | Self::U32 => DType::U32,
        }
    }

    fn define(self) -> &'static str {
        match self {
            Self::F32 => "KEY_F32",
            Self::I32 => "KEY_I32",
            Self::U32 => "KEY_U32",
        }
    }

    /// The order of two elements, of which the bits are given.
    fn compare(self, a: u32, b: u32) -> Ordering {
        match self {
            Self::F32 => {
                let (a, b) = (f32::from_bits(a), f32::from_bits(b));
                // Two that don't compare: at least one is NaN.
                a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            }
            Self::I32 => (a as i32).cmp(&(b as i32)),
            Self::U32 => a.cmp(&b),
        }
    }
}

/// The sign of an f32 or i32.
const SIGN: u32 = 1 << 31;

/// The order of elements: equal ones stay as they are, whatever the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOrder {
    /// The numbers.
    pub key: SortKey,
    /// The largest first.
    pub descending: bool,
}

impl SortOrder {
    pub(in crate::tensor::ops) fn defines(self) -> Vec<(&'static str, Define)> {
        let descending = self.descending.then_some(("DESCENDING", Define::Flag));
        [(self.key.define(), Define::Flag)].into_iter().chain(descending).collect()
    }

    /// The columns of a row in this order.
    pub(in crate::tensor::ops) fn columns(self, row: &[u32]) -> Vec<u32> {
        let mut columns: Vec<u32> = (0..row.len() as u32).collect();
        columns.sort_by(|a, b| {
            let order = self.key.compare(row[*a as usize], row[*b as usize]);
            if self.descending { order.reverse() } else { order }
        });
        columns
    }

    /// The number that kernels compare in place of an element: smaller comes first.
    pub(in crate::tensor::ops) fn word(self, element: u32) -> u32 {
        let ascending = match self.key {
            SortKey::F32 if f32::from_bits(element).is_nan() => u32::MAX,
            SortKey::F32 if element >> 31 == 0 => element | SIGN,
            SortKey::F32 if element == SIGN => SIGN,
            SortKey::F32 => !element,
            SortKey::I32 => element ^ SIGN,
            SortKey::U32 => element,
        };
        if self.descending { !ascending } else { ascending }
    }
}

/// The elements that one workgroup sorts in its memory.
pub(in crate::tensor::ops) const RUN: usize = 1024;

/// Rows and columns of an input, none of which is 0.
pub(in crate::tensor::ops) fn rows(op: &str, input: &Desc) -> Result<(usize, usize)> {
    let [rows, columns] = *input.shape.dims() else { bail!(ShapeMismatch, "{op}: {}, wanted [rows, n]", input.shape) };
    if rows == 0 || columns == 0 {
        bail!(ShapeMismatch, "{op}: {} has no elements", input.shape);
    }
    fits_u32(op, &[rows, columns])?;
    Ok((rows, columns))
}

/// Checks that a number of elements to keep is one that a row has.
pub(in crate::tensor::ops) fn expect_keep(op: &str, keep: usize, x: &Desc) -> Result<()> {
    let (_, columns) = rows(op, x)?;
    if keep == 0 || keep > columns {
        bail!(ShapeMismatch, "{op}: k is {keep}, and the rows of {} have {columns} elements", x.shape);
    }
    Ok(())
}

/// The kernel of `sort.wgsl`: sorts runs of up to `RUN` elements, and writes the first `keep` of each to a row of `out_columns`.
pub(in crate::tensor::ops) fn kernel(
    input: &Desc,
    keep: usize,
    out_columns: usize,
    defines: Vec<(&'static str, Define)>,
    capabilities: &Capabilities,
) -> Result<Kernel> {
    let (rows, columns) = rows("sort", input)?;
    let runs = columns.div_ceil(RUN);
    // A power of two, as the network wants it; rows that are shorter share a workgroup.
    let size = columns.min(RUN).max(keep.min(out_columns)).next_power_of_two().max(2);
    let lines = rows * runs;
    let lines_of_group = (RUN / size).min(lines.min(RUN).next_power_of_two());
    Ok(Kernel {
        template: crate::shader!("sort.wgsl"),
        modules: &[],
        defines: [("RUN", Define::U32(RUN as u32))].into_iter().chain(defines).collect(),
        params: [lines, runs, columns, size, size * lines_of_group, keep, out_columns].map(|word| word as u32).to_vec(),
        grid: grid_2d(lines.div_ceil(lines_of_group), capabilities.max_workgroups_per_dimension),
    })
}

/// Numbers for tests, many of them equal, and of f32 also those that are not finite and both zeros.
pub(in crate::tensor::ops) fn random(key: SortKey, dims: &[usize], rng: &mut crate::tensor::Rng) -> HostTensor {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, -f32::NAN, f32::MAX, f32::MIN, 1e-40, -1e-40];
    let mut number = |_: usize| {
        let any = rng.next_u64();
        match (key, any % 4) {
            (SortKey::F32, 0) => special[(any >> 8) as usize % special.len()].to_bits(),
            (SortKey::F32, 1) => ((any >> 8) as u8 as f32 - 100.0).to_bits(),
            (SortKey::F32, _) => rng.signed().to_bits(),
            (_, 0) => ((any >> 8) as u8 as u32).wrapping_sub(100),
            (_, _) => (any >> 8) as u32,
        }
    };
    let data: Vec<u32> = (0..dims.iter().product()).map(&mut number).collect();
    HostTensor { dtype: key.dtype(), ..HostTensor::u32(dims, &data) }
}
