//! Columns in SoA (structure of arrays), the layout that the ops of one token have in common with GPUs: array i of eight holds columns 4i to
//! 4i + 3 of every block of 32.

/// Columns of a block.
const BLOCK: usize = 32;
/// Those of a block that stand together.
const FOUR: usize = 4;

/// Columns in their order → the same in SoA, for whole blocks of both.
pub fn to_soa(columns: &[f32], soa: &mut [f32]) {
    let blocks = columns.len().min(soa.len()) / BLOCK;
    for (array, soa) in soa.chunks_exact_mut((blocks * FOUR).max(1)).take(BLOCK / FOUR).enumerate() {
        for (columns, soa) in columns.chunks_exact(BLOCK).zip(soa.chunks_exact_mut(FOUR)) {
            soa.copy_from_slice(&columns[array * FOUR..][..FOUR]);
        }
    }
}

/// The inverse of `to_soa`.
pub fn from_soa(soa: &[f32], columns: &mut [f32]) {
    let blocks = columns.len().min(soa.len()) / BLOCK;
    for (array, soa) in soa.chunks_exact((blocks * FOUR).max(1)).take(BLOCK / FOUR).enumerate() {
        for (columns, soa) in columns.chunks_exact_mut(BLOCK).zip(soa.chunks_exact(FOUR)) {
            columns[array * FOUR..][..FOUR].copy_from_slice(soa);
        }
    }
}
