//! What windows that pool a plane have in common.

use crate::error::Result;
use crate::tensor::Desc;
use crate::tensor::ops::convolution::sliding::{Sliding, four, output};

/// The values that windows over x [n, c, h, w] give: [n, c, out_h, out_w].
pub fn pooled(op: &str, x: Desc, window: [Sliding; 2], ceil_mode: bool) -> Result<Desc> {
    let [n, c, h, w] = four(op, "x", x.shape)?;
    for Sliding { kernel, padding, .. } in window {
        if padding > kernel / 2 {
            bail!(ShapeMismatch, "{op}: a padding of {padding} is more than half of the kernel's {kernel}");
        }
    }
    let [vertical, horizontal] = window;
    output(op, [n, c, vertical.windows(op, h, ceil_mode)?, horizontal.windows(op, w, ceil_mode)?])
}
