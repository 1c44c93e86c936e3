//! The largest element, or the mean, of windows.

use super::convolution::{Convolution, TransposedConvolution};
use super::functions::Scalar;
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
        let (outputs, dims) = self.detached().pooled("max_pool2d", &op)?;
        let (values, indices) = match &outputs[..] {
            [values, indices] => {
                (self.narrowed(values, &dims, self.dtype())?, self.narrowed(indices, &dims, DType::I32)?)
            }
            _ => {
                let library = self.library();
                (library.constant(&dims, self.dtype(), 0)?, library.constant(&dims, DType::I32, 0)?)
            }
        };
        let shape = self.shape();
        let values = values.derived("max_pool2d", &[self], &[Some(&indices)], move |pull| {
            let gradient = &pull.gradient;
            if gradient.elements() == 0 {
                return Ok(vec![Some(gradient.zeros(shape.dims())?)]);
            }
            let (planes, plane) = planes(shape);
            let flat = Shape::from([planes, gradient.elements() / planes]);
            let (indices, gradient) = (pull.saved(0)?.viewed(flat)?, gradient.viewed(flat)?);
            let sums = gradient.zeros(&[planes, plane])?.scatter_add(1, &indices, &gradient)?;
            Ok(vec![Some(sums.viewed(shape)?)])
        })?;
        Ok((values, indices))
    }

    /// The mean of each window of x [n, c, h, w], or without n. `count_include_pad` says whether padding counts as elements.
    pub fn avg_pool2d(&self, how: Pooling, count_include_pad: bool) -> Result<Array> {
        let Pooling { kernel, stride, padding, ceil_mode, .. } = how;
        let op = ops::AvgPool2d { kernel, stride, padding, ceil_mode, count_include_pad };
        let (outputs, dims) = self.detached().pooled("avg_pool2d", &op)?;
        let means = match &outputs[..] {
            [means] => self.narrowed(means, &dims, self.dtype())?,
            _ => self.library().constant(&dims, self.dtype(), 0)?,
        };
        let shape = self.shape();
        means.derived_from("avg_pool2d", self, move |gradient| mean_gradient(gradient, shape, how, count_include_pad))
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

/// The number of planes, and the elements of one.
fn planes(shape: Shape) -> (usize, usize) {
    let (outer, plane) = shape.dims().split_at(shape.dims().len() - 2);
    (outer.iter().product(), plane.iter().product())
}

/// Each mean's gradient, by the number of its elements, to all of them: a transposed convolution with ones.
fn mean_gradient(gradient: &Array, shape: Shape, how: Pooling, count_include_pad: bool) -> Result<Array> {
    let ([.., height, width], [.., out_height, out_width]) = (shape.dims(), gradient.dims()) else {
        bail!(Internal, "planes have two dimensions")
    };
    if gradient.elements() == 0 {
        return gradient.zeros(shape.dims());
    }
    let (size, out, (planes, _)) = ([*height, *width], [*out_height, *out_width], planes(shape));
    let Pooling { kernel, stride, padding, .. } = how;
    let full = |dims: [usize; 2]| gradient.library().full(&[1, 1, dims[0], dims[1]], DType::F32, Scalar::Int(1));
    let ones = full(kernel)?;
    // All that the windows see, the last ones perhaps past the end.
    let reach = [0, 1].map(|at| (out[at] - 1) * stride[at] + kernel[at]);
    let before_and_after = |inside: [usize; 2], before: [usize; 2]| {
        [1, 0].map(|at| [before[at] as i64, reach[at] as i64 - before[at] as i64 - inside[at] as i64]).concat()
    };
    let sliding = Convolution { stride, ..Convolution::default() };
    let counted = if count_include_pad {
        full([0, 1].map(|at| size[at] + 2 * padding[at]))?
            .pad(&before_and_after([0, 1].map(|at| size[at] + 2 * padding[at]), [0; 2]), Scalar::Int(0))?
    } else {
        full(size)?.pad(&before_and_after(size, padding), Scalar::Int(0))?
    };
    let counts = counted.conv2d(&ones, None, sliding)?;
    let shared = gradient.viewed(Shape::from([planes, 1, out[0], out[1]]))?.over(&counts)?;
    let transposed = TransposedConvolution { of: sliding, output_padding: [0; 2] };
    let sums = shared.conv_transpose2d(&ones, None, transposed)?;
    let back: Vec<i64> = before_and_after(size, padding).iter().map(|count| -count).collect();
    sums.pad(&back, Scalar::Int(0))?.viewed(shape)
}
