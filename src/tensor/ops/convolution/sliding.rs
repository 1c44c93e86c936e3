//! How a window slides over a plane: what convolutions and pooling share.

use crate::error::Result;
use crate::tensor::{Desc, Shape};

/// The largest place in a plane with its padding. Kernels count places in i32, since padding makes them negative, and may add
/// several of them.
pub const LAST: usize = i32::MAX as usize / 4;

/// A window and its steps, along height or along width.
#[derive(Clone, Copy)]
pub struct Sliding {
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
}

impl Sliding {
    /// Along height and along width.
    pub fn both(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> [Self; 2] {
        [0, 1].map(|i| Self { kernel: kernel[i], stride: stride[i], padding: padding[i], dilation: dilation[i] })
    }

    /// Refuses what no window can be, and what kernels could not count.
    fn check(&self, op: &str) -> Result<()> {
        let Self { kernel, stride, padding, dilation } = *self;
        if kernel == 0 || stride == 0 || dilation == 0 {
            bail!(ShapeMismatch, "{op}: kernel {kernel}, stride {stride} and dilation {dilation} must not be 0");
        }
        if padding > LAST || (kernel - 1).checked_mul(dilation).is_none_or(|last| last > LAST) {
            bail!(ShapeMismatch, "{op}: kernel {kernel}, padding {padding} and dilation {dilation} are too large");
        }
        Ok(())
    }

    /// From a window's first element to its last, both included.
    pub fn extent(&self) -> usize {
        (self.kernel - 1) * self.dilation + 1
    }

    /// How many windows fit into an input of this size with its padding. With `ceil`, the last one may reach past the end if it
    /// begins in the input or in the padding before it.
    pub fn windows(&self, op: &str, size: usize, ceil: bool) -> Result<usize> {
        self.check(op)?;
        let (padded, extent) = (padded(op, size, self.padding)?, self.extent());
        // A stride that is larger than everything is as good as one that is as large.
        let stride = self.stride.min(LAST);
        let Some(free) = (padded + if ceil { stride - 1 } else { 0 }).checked_sub(extent) else {
            let Self { kernel, dilation, padding, .. } = *self;
            bail!(
                ShapeMismatch,
                "{op}: a kernel of {kernel} with dilation {dilation} is larger than an input of {size} with padding {padding}"
            );
        };
        let last = free / stride;
        Ok(if ceil && last * stride >= size + self.padding { last } else { last + 1 })
    }

    /// The size that `windows` takes to `size`, if `extra` elements are added at its end: that of a transposed convolution.
    pub fn transposed(&self, op: &str, size: usize, extra: usize) -> Result<usize> {
        self.check(op)?;
        let Self { stride, padding, dilation, .. } = *self;
        if extra >= stride.max(dilation) {
            bail!(
                ShapeMismatch,
                "{op}: an output padding of {extra} is not below the stride {stride} or the dilation {dilation}"
            );
        }
        let whole = (size - 1).checked_mul(stride).and_then(|last| last.checked_add(self.extent()));
        match whole.and_then(|whole| whole.checked_add(extra)).filter(|whole| *whole <= LAST) {
            Some(whole) if whole > 2 * padding => Ok(whole - 2 * padding),
            Some(whole) => bail!(ShapeMismatch, "{op}: a padding of {padding} leaves nothing of an output of {whole}"),
            None => bail!(ShapeMismatch, "{op}: a stride of {stride} makes the output too large"),
        }
    }
}

fn padded(op: &str, size: usize, padding: usize) -> Result<usize> {
    match (2 * padding).checked_add(size).filter(|padded| *padded <= LAST) {
        Some(padded) => Ok(padded),
        None => bail!(ShapeMismatch, "{op}: a size of {size} with a padding of {padding} is too large"),
    }
}

/// The window as a kernel's parameters: height and width of each number. What is larger than a place can be is only ever
/// multiplied by 0.
pub fn words(window: [Sliding; 2]) -> Vec<u32> {
    let numbers = [
        window.map(|of| of.kernel),
        window.map(|of| of.stride),
        window.map(|of| of.padding),
        window.map(|of| of.dilation),
    ];
    numbers.as_flattened().iter().map(|number| (*number).min(LAST) as u32).collect()
}

/// The four dimensions of an input.
pub fn four(op: &str, what: &str, shape: Shape) -> Result<[usize; 4]> {
    match shape.dims().try_into() {
        Ok(dims) => Ok(dims),
        Err(_) => bail!(ShapeMismatch, "{op}: {what} has four dimensions, which {shape} has not"),
    }
}

/// An f32 output, if its elements can be counted.
pub fn output(op: &str, dims: [usize; 4]) -> Result<Desc> {
    let elements = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    match elements {
        Some(elements) if elements <= i32::MAX as usize => Ok(Desc::f32(&dims)),
        _ => bail!(ShapeMismatch, "{op}: an output of {dims:?} is too large"),
    }
}
