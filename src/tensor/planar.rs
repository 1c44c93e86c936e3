//! The layout that mat-vecs of one token want their activations in. Columns come in blocks of 32, as weights do, and plane i
//! holds columns 4i to 4i + 3 of every block: neighbouring lanes take neighbouring blocks, so in this order they read side by
//! side. `wgsl/planar.wgsl` is the same for kernels.

use super::HostTensor;
use super::quant::BLOCK;
use crate::error::Result;

/// Where a column stands.
fn planar_index(column: usize, blocks: usize) -> usize {
    (column % BLOCK / 4 * blocks + column / BLOCK) * 4 + column % 4
}

/// Columns, a multiple of 32, in their order → in planes.
pub fn to_planar(columns: &[f32]) -> Vec<f32> {
    let mut planar = vec![0.0; columns.len()];
    for (column, value) in columns.iter().enumerate() {
        planar[planar_index(column, columns.len() / BLOCK)] = *value;
    }
    planar
}

/// The inverse of `to_planar`.
pub fn from_planar(planar: &[f32]) -> Vec<f32> {
    (0..planar.len()).map(|column| planar[planar_index(column, planar.len() / BLOCK)]).collect()
}

/// The rows of a tensor, each in planes.
pub(super) fn rows_to_planar(x: &HostTensor) -> Result<HostTensor> {
    let (_, columns) = x.shape.matrix()?;
    let planar: Vec<f32> = x.to_f32()?.chunks_exact(columns).flat_map(to_planar).collect();
    Ok(HostTensor::f32(x.shape.dims(), &planar))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_hold_four_columns_of_each_block() {
        let columns: Vec<f32> = (0..96).map(|column| column as f32).collect();
        let planar = to_planar(&columns);
        assert_eq!(planar[..12], [0., 1., 2., 3., 32., 33., 34., 35., 64., 65., 66., 67.]);
        assert_eq!(planar[84..], [28., 29., 30., 31., 60., 61., 62., 63., 92., 93., 94., 95.]);
        assert_eq!(from_planar(&planar), columns);
    }
}
