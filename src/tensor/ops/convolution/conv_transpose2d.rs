//! Transposed convolution of planes: the gradient of a convolution with respect to its input, which makes planes larger.
//!
//! Each output looks at the inputs that reach it. Along an axis those are every so many elements of the kernel, beginning with one
//! that depends on the output's place modulo the stride (Dumoulin, Visin 2016, "A guide to convolution arithmetic").

use super::sliding::{LAST, Sliding, four, output, words};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [n, c_in, h, w], weight [c_in, c_out / groups, kernel height, kernel width] and, if there is one, a bias [c_out].
/// Output: [n, c_out, out_h, out_w]. Pairs are of height and width.
#[derive(Clone)]
pub struct ConvTranspose2d {
    /// From where one input's kernel begins in the output to where the next one's does.
    pub stride: [usize; 2],
    /// Rows and columns that are cut off at each side of the output.
    pub padding: [usize; 2],
    /// Rows and columns that are added at the end of the output.
    pub output_padding: [usize; 2],
    /// From one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Groups of channels, each convolved by itself.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

/// Output positions of an invocation, one stride apart, so that the same elements of the kernel reach all of them.
const POSITIONS: usize = 4;

/// What of the shapes the kernel needs.
struct Sizes {
    /// Of x: n, channels, height, width.
    x: [usize; 4],
    /// Input channels, output channels of a group, kernel height, kernel width.
    weight: [usize; 4],
    /// Height and width of the output.
    out: [usize; 2],
}

impl ConvTranspose2d {
    fn window(&self, weight: [usize; 4]) -> [Sliding; 2] {
        Sliding::both([weight[2], weight[3]], self.stride, self.padding, self.dilation)
    }

    fn sizes(&self, inputs: &[Desc]) -> Result<Sizes> {
        let op = self.name();
        let x = four(op, "x", inputs[0].shape)?;
        let weight = four(op, "the weight", inputs[1].shape)?;
        let groups = self.groups;
        if weight[0] != x[1] {
            bail!(
                ShapeMismatch,
                "{op}: the weight's {} input channels are not the {} of x {}",
                weight[0],
                x[1],
                inputs[0].shape
            );
        }
        if groups == 0 || !x[1].is_multiple_of(groups) {
            bail!(ShapeMismatch, "{op}: {} input channels can't be divided into {groups} groups", x[1]);
        }
        // No more groups than input channels, so this fits.
        let rows = weight[1].checked_mul(groups);
        if self.bias && inputs[2].shape.dims().iter().copied().ne(rows) {
            bail!(
                ShapeMismatch,
                "{op}: a bias {} for {} output channels times {groups} groups",
                inputs[2].shape,
                weight[1]
            );
        }
        let [vertical, horizontal] = self.window(weight);
        let extra = self.output_padding;
        let out = [vertical.transposed(op, x[2], extra[0])?, horizontal.transposed(op, x[3], extra[1])?];
        Ok(Sizes { x, weight, out })
    }
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Op for ConvTranspose2d {
    on_cpu!();

    fn name(&self) -> &'static str {
        "conv_transpose2d"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect(self.name(), inputs, &[f32, f32, f32][..2 + usize::from(self.bias)])?;
        let Sizes { x, weight, out } = self.sizes(inputs)?;
        let Some(rows) = weight[1].checked_mul(self.groups) else {
            bail!(ShapeMismatch, "{}: {} channels in {} groups are too many", self.name(), weight[1], self.groups);
        };
        Ok(vec![output(self.name(), [x[0], rows, out[0], out[1]])?])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let Sizes { x: [n, channels, height, width], weight, out } = self.sizes(inputs)?;
        let rows = weight[1];
        // Invocations for a row of the output: one for each column up to the stride, then past what those compute.
        let step = self.stride[1].min(out[1]);
        let lanes = out[1].div_ceil(POSITIONS * step) * step;
        let numbers =
            [n, channels, height, width, rows, channels / self.groups, self.groups, out[0], out[1], step, lanes];
        let mut params: Vec<u32> = numbers.iter().map(|number| *number as u32).collect();
        let window = self.window(weight);
        params.extend(words(window));
        // The elements of the kernel that reach an output are `period` apart, and the inputs that they come from `gap`.
        let shared = window.map(|of| greatest_common_divisor(of.stride, of.dilation));
        for of in [0, 1] {
            let period = (window[of].stride / shared[of]).min(window[of].kernel);
            // A larger dilation has no second element.
            let gap = (window[of].dilation / shared[of]).min(LAST);
            params.extend([period as u32, gap as u32]);
        }
        let mut defines = vec![];
        if self.bias {
            defines.push(("BIAS", Define::Flag));
        }
        if rows > 1 {
            defines.push(("ROWS_4", Define::Flag));
        }
        let at_once = if rows > 1 { 4 } else { 1 };
        let workgroups = (n * out[0] * lanes).div_ceil(64) * rows.div_ceil(at_once) * self.groups;
        Ok(Kernel {
            template: crate::shader!("conv_transpose2d.wgsl"),
            modules: &[],
            defines,
            params,
            grid: grid_2d(workgroups, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for ConvTranspose2d {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let descs: Vec<Desc> = inputs.iter().map(HostTensor::desc).collect();
        let Sizes { x: [n, channels, h, w], weight: [_, group_rows, kh, kw], out: [out_h, out_w] } =
            self.sizes(&descs)?;
        let rows = group_rows * self.groups;
        let (x, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let bias = if self.bias { inputs[2].to_f32()? } else { vec![0.0; rows] };
        let plane = out_h * out_w;
        let mut out: Vec<f64> = (0..n * rows * plane).map(|i| f64::from(bias[i / plane % rows])).collect();
        // As a scatter: every input adds the kernels of its channel, where its place times the stride says.
        for (i, value) in x.iter().enumerate() {
            let (image, channel, y, column) = (i / (channels * h * w), i / (h * w) % channels, i / w % h, i % w);
            let first = image * rows + channel / (channels / self.groups) * group_rows;
            let kernels = &weight[channel * group_rows * kh * kw..][..group_rows * kh * kw];
            for (j, weight) in kernels.iter().enumerate() {
                let (row, ky, kx) = (j / (kh * kw), j / kw % kh, j % kw);
                let y = (y * self.stride[0] + ky * self.dilation[0]).wrapping_sub(self.padding[0]);
                let column = (column * self.stride[1] + kx * self.dilation[1]).wrapping_sub(self.padding[1]);
                if y < out_h && column < out_w {
                    out[((first + row) * out_h + y) * out_w + column] += f64::from(*value) * f64::from(*weight);
                }
            }
        }
        let out: Vec<f32> = out.iter().map(|sum| *sum as f32).collect();
        Ok(vec![HostTensor::f32(&[n, rows, out_h, out_w], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(92);
    // x, output channels of a group, kernel, stride, padding, output padding, dilation, groups
    let shapes = [
        ([1, 1, 1, 1], 1, [1, 1], [1, 1], [0, 0], [0, 0], [1, 1], 1),
        ([2, 3, 7, 5], 4, [3, 3], [1, 1], [1, 1], [0, 0], [1, 1], 1),
        ([1, 8, 13, 11], 6, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1], 1),
        ([2, 5, 6, 7], 3, [3, 3], [2, 3], [1, 0], [1, 2], [1, 1], 1),
        // Strides and dilations with and without a common divisor; outputs that nothing reaches.
        ([1, 4, 5, 6], 5, [3, 4], [4, 2], [0, 3], [1, 0], [2, 3], 1),
        ([1, 3, 4, 9], 2, [2, 3], [3, 6], [0, 1], [0, 3], [6, 4], 1),
        ([1, 2, 6, 5], 1, [1, 1], [3, 3], [0, 0], [2, 1], [1, 1], 1),
        ([2, 6, 5, 9], 2, [5, 2], [2, 1], [2, 0], [0, 0], [1, 2], 3),
        // Depthwise, and of one dimension.
        ([1, 7, 17, 19], 1, [3, 3], [2, 2], [1, 1], [1, 1], [1, 1], 7),
        ([2, 5, 1, 97], 6, [1, 8], [1, 4], [0, 2], [0, 0], [1, 1], 1),
        // Strides larger than the output.
        ([1, 3, 1, 1], 2, [3, 2], [usize::MAX, 1 << 30], [0, 0], [0, 0], [1, 1], 1),
        ([1, 16, 33, 31], 9, [3, 3], [2, 2], [1, 1], [1, 1], [1, 1], 1),
    ];
    let cases = shapes.into_iter().enumerate();
    cases
        .map(|(index, (x, rows, kernel, stride, padding, output_padding, dilation, groups))| {
            let bias = index % 2 == 1;
            let mut inputs = vec![rng.tensor(&x), rng.tensor(&[x[1], rows, kernel[0], kernel[1]])];
            if bias {
                inputs.push(rng.tensor(&[rows * groups]));
            }
            Case::new(ConvTranspose2d { stride, padding, output_padding, dilation, groups, bias }, inputs, 1e-5)
        })
        .collect()
}
