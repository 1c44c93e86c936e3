//! Sorts rows of any length: in runs that fit a workgroup, which are then merged two by two.

use super::pair;
use crate::error::Result;
use crate::tensor::ops::{Gather, MergeRuns, RunsOf, Sort, SortOrder, SortRuns};
use crate::tensor::{Context, Shape, Tensor};

/// Records a stable sort of each row of x [rows, n]: gives the values, and their columns in x as u32. For n up to 1024 one dispatch,
/// beyond log2(n / 1024), rounded up, and two more.
pub fn sort_rows(context: &Context, x: &Tensor, order: SortOrder) -> Result<(Tensor, Tensor)> {
    let columns = x.shape().dims().last().copied().unwrap_or(1);
    if columns <= Sort::MOST {
        return pair(context.run(&Sort { order, keep: columns }, &[x])?);
    }
    let columns = sorted_columns(context, x, order, columns)?;
    Ok((values_of(context, x, &columns)?, columns))
}

/// The columns of the first `keep` elements of each sorted row, for rows longer than a run.
pub(super) fn sorted_columns(context: &Context, x: &Tensor, order: SortOrder, keep: usize) -> Result<Tensor> {
    let mut run = SortRuns::RUN;
    let (mut keys, mut indices) = pair(context.run(&SortRuns { of: RunsOf::Elements(order), keep: run }, &[x])?)?;
    let (_, columns) = x.shape().matrix()?;
    while run < columns {
        let merged = run.saturating_mul(2);
        let keep = if merged < columns { columns } else { keep };
        (keys, indices) = pair(context.run(&MergeRuns { run, keep }, &[&keys, &indices])?)?;
        run = merged;
    }
    Ok(indices)
}

/// The elements of x [rows, n] in these columns [rows, m].
pub(super) fn values_of(context: &Context, x: &Tensor, columns: &Tensor) -> Result<Tensor> {
    let ((rows, n), (_, m)) = (x.shape().matrix()?, columns.shape().matrix()?);
    let x = x.reshaped(Shape::from([rows, n, 1]))?;
    let index = columns.reshaped(Shape::from([rows, m, 1]))?;
    context.run1(&Gather { float: false, signed: false }, &[&x, &index])?.reshaped(columns.shape())
}
