//! SoA (structure of arrays): the layout in which mat-vecs of one token read their activations. Columns come in blocks of 32, as
//! weights do, and array i holds columns 4i to 4i + 3 of every block: neighbouring lanes take neighbouring blocks, so in this
//! order they read side by side. `wgsl/soa.wgsl` is the same for kernels.

use super::HostTensor;
use super::quant::BLOCK;
use crate::error::Result;

/// The index of a column in SoA.
fn soa_index(column: usize, blocks: usize) -> usize {
    (column % BLOCK / 4 * blocks + column / BLOCK) * 4 + column % 4
}

/// Columns in their order → columns in SoA. Their number is a multiple of 32.
pub fn to_soa(columns: &[f32]) -> Vec<f32> {
    let mut soa = vec![0.0; columns.len()];
    write_soa(columns, &mut soa);
    soa
}

/// The inverse of `to_soa`.
pub fn from_soa(soa: &[f32]) -> Vec<f32> {
    let mut columns = vec![0.0; soa.len()];
    rillm_cpu_kernels::from_soa(soa, &mut columns);
    columns
}

/// The same into memory that is there, for columns of a multiple of 32.
pub(super) fn write_soa(columns: &[f32], soa: &mut [f32]) {
    rillm_cpu_kernels::to_soa(columns, soa);
}

/// A row's columns, which are in their order, to memory that is there: in SoA or as they are.
pub(super) fn write_row(columns: &[f32], soa: bool, out: &mut [f32]) {
    if soa { write_soa(columns, out) } else { out.copy_from_slice(columns) }
}

/// Changes columns from `first` on of a vector in SoA, each with its number of `by`.
pub(super) fn change_soa(soa: &mut [f32], first: usize, by: &[f32], change: impl Fn(f32, f32) -> f32) {
    let blocks = soa.len() / BLOCK;
    for (column, by) in (first..).zip(by) {
        let value = &mut soa[soa_index(column, blocks)];
        *value = change(*value, *by);
    }
}

/// The rows of a tensor, each in SoA.
pub(super) fn rows_to_soa(x: &HostTensor) -> Result<HostTensor> {
    let (_, columns) = x.shape.matrix()?;
    let soa: Vec<f32> = x.to_f32()?.chunks_exact(columns).flat_map(to_soa).collect();
    Ok(HostTensor::f32(x.shape.dims(), &soa))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_array_holds_four_columns_of_each_block() {
        let columns: Vec<f32> = (0..96).map(|column| column as f32).collect();
        let soa = to_soa(&columns);
        assert_eq!(soa[..12], [0., 1., 2., 3., 32., 33., 34., 35., 64., 65., 66., 67.]);
        assert_eq!(soa[84..], [28., 29., 30., 31., 60., 61., 62., 63., 92., 93., 94., 95.]);
        assert_eq!(from_soa(&soa), columns);
    }
}
