//! The largest element, or the mean, of windows.

use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::error::Result;
use crate::tensor::{Desc, Op, Shape, Tensor, ops};

/// How a window slides. Pairs are of height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Rows and columns of a window.
    pub kernel: [usize; 2],
    /// From one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns before and after the input; at most half the kernel.
    pub padding: [usize; 2],
    /// From one element of a window to the next.
    pub dilation: [usize; 2],
    /// Whether the last windows may reach past the end.
    pub ceil_mode: bool,
}

impl Array {
    /// The largest element of each window of x [n, c, h, w], or without n, and its index h · w + w in its plane as i32.
    pub fn max_pool2d(&self, how: Pooling) -> Result<(Array, Array)> {
        let Pooling { kernel, stride, padding, dilation, ceil_mode } = how;
        let op = ops::MaxPool2d { kernel, stride, padding, dilation, ceil_mode };
        let (outputs, dims) = self.pooled("max_pool2d", &op)?;
        match &outputs[..] {
            [values, indices] => {
                Ok((self.narrowed(values, &dims, self.dtype())?, self.narrowed(indices, &dims, DType::I32)?))
            }
            _ => {
                let library = self.library();
                Ok((library.constant(&dims, self.dtype(), 0)?, library.constant(&dims, DType::I32, 0)?))
            }
        }
    }

    /// The mean of each window of x [n, c, h, w], or without n. `count_include_pad` says whether padding counts as elements.
    pub fn avg_pool2d(&self, how: Pooling, count_include_pad: bool) -> Result<Array> {
        let Pooling { kernel, stride, padding, ceil_mode, .. } = how;
        let op = ops::AvgPool2d { kernel, stride, padding, ceil_mode, count_include_pad };
        let (outputs, dims) = self.pooled("avg_pool2d", &op)?;
        match &outputs[..] {
            [means] => self.narrowed(means, &dims, self.dtype()),
            _ => self.library().constant(&dims, self.dtype(), 0),
        }
    }

    /// The outputs, none for an empty batch, and their dimensions.
    fn pooled(&self, what: &str, op: &dyn Op) -> Result<(Vec<Tensor>, Vec<usize>)> {
        if !self.dtype().is_float() {
            bail!(DtypeMismatch, "{what}: the input is {}, wanted floats", self.dtype().name());
        }
        let x = if self.dims().len() == 3 { self.unsqueeze(0)? } else { self.clone() };
        let is_empty = x.dims().first() == Some(&0);
        let shown = if is_empty { x.resized(0, 1) } else { x.dims().to_vec() };
        let Some(desc) = op.infer(&[Desc::f32(&shown)])?.into_iter().next() else {
            bail!(Internal, "{what} has no output")
        };
        let mut dims = desc.shape.dims().to_vec();
        if is_empty {
            dims[0] = 0;
        }
        let outputs = if is_empty { Vec::new() } else { self.library().run(op, &[&x.wide(x.dims())?])? };
        if self.dims().len() == 3 {
            dims.remove(0);
        }
        let shape = Shape::new(&dims);
        let outputs = outputs.iter().map(|output| output.reshaped(shape)).collect::<Result<_>>()?;
        Ok((outputs, dims))
    }
}
