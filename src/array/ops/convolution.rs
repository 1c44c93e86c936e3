//! Convolutions over one and two dimensions, and their transposes.

use super::reductions::Reduce;
use crate::array::dtype::{DType, promote};
use crate::array::gradient::history::Pull;
use crate::array::graph::node::Array;
use crate::error::{Error, Result};
use crate::tensor::{Desc, Op, Shape, ops};

/// How a kernel slides. Pairs are of height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// From one place to the next.
    pub stride: [usize; 2],
    /// Zeros before and after the input.
    pub padding: [usize; 2],
    /// From one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Channels are convolved in so many parts.
    pub groups: usize,
}

impl Default for Convolution {
    fn default() -> Self {
        Self { stride: [1; 2], padding: [0; 2], dilation: [1; 2], groups: 1 }
    }
}

/// How a transposed kernel slides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransposedConvolution {
    /// The convolution that it is the transpose of.
    pub of: Convolution,
    /// Added to one side of the result.
    pub output_padding: [usize; 2],
}

impl Array {
    /// x [n, c_in, h, w], or without n, with a weight [c_out, c_in / groups, kh, kw]: [n, c_out, oh, ow]. The bias is [c_out].
    pub fn conv2d(&self, weight: &Array, bias: Option<&Array>, how: Convolution) -> Result<Array> {
        let Convolution { stride, padding, dilation, groups } = how;
        let op = ops::Conv2d { stride, padding, dilation, groups, bias: bias.is_some() };
        self.convolved("conv2d", &op, weight, bias, move |pull| {
            let (gradient, x, weight) = (images(&pull.gradient)?, images(pull.saved(0)?)?, pull.saved(1)?);
            let of_x = || {
                let ([_, _, height, width], [.., kernel_height, kernel_width]) = (x.dims(), weight.dims()) else {
                    bail!(Internal, "images have four dimensions")
                };
                let [.., out_height, out_width] = gradient.dims() else { bail!(Internal, "as above") };
                // What the last windows did not reach.
                let left = |at: usize, size: usize, kernel: usize, out: usize| {
                    size + 2 * padding[at] - (out - 1) * stride[at] - dilation[at] * (kernel - 1) - 1
                };
                let output_padding =
                    [left(0, *height, *kernel_height, *out_height), left(1, *width, *kernel_width, *out_width)];
                gradient.conv_transpose2d(weight, None, TransposedConvolution { of: how, output_padding })
            };
            let of_weight = || weight_gradient(&x, &gradient, weight.dims(), how);
            pull.each(&[&of_x, &of_weight, &|| gradient.reduce(Reduce::Sum, Some(&[0, 2, 3]), false)])
        })
    }

    /// The transpose of `conv2d` with regard to its input. The weight is [c_in, c_out / groups, kh, kw].
    pub fn conv_transpose2d(&self, weight: &Array, bias: Option<&Array>, how: TransposedConvolution) -> Result<Array> {
        let TransposedConvolution { of: Convolution { stride, padding, dilation, groups }, output_padding } = how;
        let bias_given = bias.is_some();
        let op = ops::ConvTranspose2d { stride, padding, output_padding, dilation, groups, bias: bias_given };
        let of = how.of;
        self.convolved("conv_transpose2d", &op, weight, bias, move |pull| {
            let (gradient, x, weight) = (images(&pull.gradient)?, images(pull.saved(0)?)?, pull.saved(1)?);
            let of_x = || cut(&gradient.conv2d(weight, None, of)?, x.dims());
            // The convolution of which it is the transpose leads from the gradient to x.
            let of_weight = || weight_gradient(&gradient, &x, weight.dims(), of);
            pull.each(&[&of_x, &of_weight, &|| gradient.reduce(Reduce::Sum, Some(&[0, 2, 3]), false)])
        })
    }

    /// The same over one dimension: x [n, c_in, w] and a weight [c_out, c_in / groups, kw]. The second of each pair counts.
    pub fn conv1d(&self, weight: &Array, bias: Option<&Array>, how: Convolution) -> Result<Array> {
        let (x, weight) = (self.with_height("conv1d")?, weight.with_height("conv1d")?);
        x.conv2d(&weight, bias, how).map_err(flat)?.without_height()
    }

    /// The transpose of `conv1d` with regard to its input.
    pub fn conv_transpose1d(&self, weight: &Array, bias: Option<&Array>, how: TransposedConvolution) -> Result<Array> {
        let (x, weight) = (self.with_height("conv_transpose1d")?, weight.with_height("conv_transpose1d")?);
        x.conv_transpose2d(&weight, bias, how).map_err(flat)?.without_height()
    }

    /// [.., w] as [.., 1, w].
    fn with_height(&self, what: &str) -> Result<Array> {
        match self.dims().len() {
            2 | 3 => self.unsqueeze(-2),
            _ => bail!(ShapeMismatch, "{what}: {}, wanted [n, channels, length]", self.shape()),
        }
    }

    fn without_height(&self) -> Result<Array> {
        self.squeeze(Some(&[-2]))
    }

    fn convolved(
        &self,
        what: &'static str,
        op: &dyn Op,
        weight: &Array,
        bias: Option<&Array>,
        rule: impl Fn(&Pull<Array>) -> Result<Vec<Option<Array>>> + 'static,
    ) -> Result<Array> {
        let plain_bias = bias.map(Array::detached);
        let result = self.detached().slid(what, op, &weight.detached(), plain_bias.as_ref())?;
        let given: Vec<&Array> = [self, weight].into_iter().chain(bias).collect();
        let shapes: Vec<Shape> = given.iter().map(|array| array.shape()).collect();
        result.derived(what, &given, &[Some(self), Some(weight)], move |pull| {
            if pull.gradient.elements() == 0 {
                return shapes.iter().map(|shape| pull.gradient.zeros(shape.dims()).map(Some)).collect();
            }
            // A single image has no dimension for images.
            let viewed = |(gradient, shape): (Option<Array>, &Shape)| gradient.map(|it| it.viewed(*shape)).transpose();
            rule(pull)?.into_iter().zip(&shapes).map(viewed).collect()
        })
    }

    fn slid(&self, what: &str, op: &dyn Op, weight: &Array, bias: Option<&Array>) -> Result<Array> {
        let x = match self.dims().len() {
            3 => self.unsqueeze(0)?,
            _ => self.clone(),
        };
        let arrays: Vec<&Array> = [&x, weight].into_iter().chain(bias).collect();
        let dtype = arrays.iter().map(|array| array.dtype()).fold(DType::Bool, promote);
        if !dtype.is_float() {
            bail!(DtypeMismatch, "{what}: the input is {}, wanted floats", dtype.name());
        }
        // Empty batches have no kernel; their shape is that of a batch of one.
        let is_empty = x.dims().first() == Some(&0);
        let shown = if is_empty { x.resized(0, 1) } else { x.dims().to_vec() };
        let mut descs: Vec<Desc> = arrays.iter().map(|array| Desc::f32(array.dims())).collect();
        descs[0] = Desc::f32(&shown);
        let Some(out) = op.infer(&descs)?.first().map(|desc| desc.shape) else {
            bail!(Internal, "{what} has no output")
        };
        let mut dims = out.dims().to_vec();
        let result = if is_empty {
            dims[0] = 0;
            self.library().constant(&dims, dtype, 0)?
        } else {
            let tensors = arrays.iter().map(|array| array.cast(DType::F32)?.wide(array.dims()));
            let tensors = tensors.collect::<Result<Vec<_>>>()?;
            let out = self.library().context().run1(op, &tensors.iter().collect::<Vec<_>>())?;
            self.narrowed(&out, &dims, dtype)?
        };
        if self.dims().len() == 3 { result.viewed(Shape::new(&dims[1..])) } else { Ok(result) }
    }
}

/// [n, c, h, w], also of one image.
fn images(array: &Array) -> Result<Array> {
    if array.dims().len() == 3 { array.unsqueeze(0) } else { Ok(array.clone()) }
}

/// As much of each dimension as is wanted.
fn cut(array: &Array, dims: &[usize]) -> Result<Array> {
    let cut = |array: Array, (dim, size): (usize, &usize)| array.slice(dim as i64, None, Some(*size as i64), 1);
    dims.iter().enumerate().try_fold(array.clone(), cut)
}

/// The gradient of a weight [c_out, c_in / groups, kh, kw], by which a convolution led from x to what has this gradient. It is a convolution
/// itself: of x, whose images are its channels, with the gradient as the weight; strides and dilations change places.
fn weight_gradient(x: &Array, gradient: &Array, weight: &[usize], how: Convolution) -> Result<Array> {
    let [n, channels, height, width] = x.dims() else { bail!(Internal, "images have four dimensions") };
    let (n, groups, of_group) = (*n, how.groups, *channels / how.groups);
    let (height, width) = (*height, *width);
    let x = x.viewed(Shape::from([n, groups, of_group, height, width]))?.permute(&[2, 1, 0, 3, 4])?;
    let x = x.viewed(Shape::from([of_group, groups * n, height, width]))?;
    let swapped = Convolution { stride: how.dilation, dilation: how.stride, ..how };
    let products = x.conv2d(&gradient.transpose(0, 1)?, None, swapped)?;
    // Windows that did not fit leave more than the kernel.
    cut(&products.transpose(0, 1)?, weight)
}

/// An error of two dimensions as one of one.
fn flat(error: Error) -> Error {
    let (name, rest) = error.message().split_once(':').unwrap_or(("", error.message()));
    Error::new(error.code(), format!("{}:{rest}", name.replace("2d", "1d")))
}
