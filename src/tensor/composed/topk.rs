//! The largest or smallest elements of each row.

use super::pair;
use super::sort::{sorted_columns, values_of};
use crate::error::Result;
use crate::tensor::ops::{RunsOf, Sort, SortOrder, SortRuns};
use crate::tensor::{Context, Tensor};

/// More than these are found by sorting whole rows: of a run of 1024 too many would stay.
const FEW: usize = 256;

/// Records the search for the first k elements of each row of x [rows, n] in this order, descending for the largest: gives the sorted
/// values [rows, k], and their columns in x as u32. k is 1 to n. Of equal elements the one of the lower column comes first.
///
/// Few elements of long rows are found by runs: the first k of each run are the candidates of the next step, until one run holds
/// them all.
pub fn topk_rows(context: &Context, x: &Tensor, k: usize, order: SortOrder) -> Result<(Tensor, Tensor)> {
    let [_, columns] = *x.shape().dims() else { bail!(ShapeMismatch, "topk: {}, wanted [rows, n]", x.shape()) };
    if k == 0 || k > columns {
        bail!(ShapeMismatch, "topk: k is {k}, and the rows of {} have {columns} elements", x.shape());
    }
    if columns <= Sort::MOST {
        return pair(context.run(&Sort { order, keep: k }, &[x])?);
    }
    let indices = if k <= FEW { first_of_runs(context, x, k, order)? } else { sorted_columns(context, x, order, k)? };
    Ok((values_of(context, x, &indices)?, indices))
}

fn first_of_runs(context: &Context, x: &Tensor, k: usize, order: SortOrder) -> Result<Tensor> {
    let of = RunsOf::Elements(order);
    let (mut keys, mut indices) = pair(context.run(&SortRuns { of, keep: k }, &[x])?)?;
    while keys.shape().matrix()?.1 > k {
        (keys, indices) = pair(context.run(&SortRuns { of: RunsOf::Pairs, keep: k }, &[&keys, &indices])?)?;
    }
    Ok(indices)
}
