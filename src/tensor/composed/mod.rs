//! Functions of tensors that take several ops, because an op is one dispatch.

mod cumsum;
mod sort;
mod topk;

pub use cumsum::cumsum;
pub use sort::sort_rows;
pub use topk::topk_rows;

use super::Tensor;
use crate::error::Result;

/// The outputs of an op that has two.
fn pair(outputs: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
    match <[Tensor; 2]>::try_from(outputs) {
        Ok([first, second]) => Ok((first, second)),
        Err(outputs) => bail!(Internal, "an op has {} outputs, not two", outputs.len()),
    }
}
