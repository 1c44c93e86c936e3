//! Cumulative sums of lines of any length.

use super::pair;
use crate::error::Result;
use crate::tensor::ops::{AddBlockSums, Cumsum, ScanBlocks};
use crate::tensor::{Context, Tensor};

/// Records the cumulative sums of x [outer, n, inner], f32 or u32, along n. Few long lines take three dispatches, and other shapes one.
pub fn cumsum(context: &Context, x: &Tensor) -> Result<Tensor> {
    let Some(block) = Cumsum::block(&x.desc(), context.device().capabilities())? else {
        return context.run1(&Cumsum, &[x]);
    };
    let (out, sums) = pair(context.run(&ScanBlocks { block }, &[x])?)?;
    // There may be so many blocks that their sums are a long line, too.
    let sums = cumsum(context, &sums)?;
    context.run(&AddBlockSums { block }, &[&out, &sums])?;
    Ok(out)
}
