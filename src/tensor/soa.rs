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
    for (column, value) in columns.iter().enumerate() {
        soa[soa_index(column, columns.len() / BLOCK)] = *value;
    }
    soa
}

/// The inverse of `to_soa`.
pub fn from_soa(soa: &[f32]) -> Vec<f32> {
    (0..soa.len()).map(|column| soa[soa_index(column, soa.len() / BLOCK)]).collect()
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
