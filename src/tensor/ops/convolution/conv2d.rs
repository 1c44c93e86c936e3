//! Convolution of planes, in the sense of neural networks: the kernel is not turned over.
//!
//! On GPUs it is a matrix product of the weight with the windows, which are gathered from the input on their way to workgroup
//! memory and never stored (implicit GEMM; Chetlur et al. 2014, "cuDNN"). Where a group has few output channels, as in a depthwise
//! convolution, and on software adapters, where barriers are expensive, each invocation computes its outputs alone.

use super::sliding::{Sliding, four, output, words};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [n, c_in, h, w], weight [c_out, c_in / groups, kernel height, kernel width] and, if there is one, a bias [c_out].
/// Output: [n, c_out, out_h, out_w]. Pairs are of height and width.
#[derive(Clone)]
pub struct Conv2d {
    /// From one window to the next.
    pub stride: [usize; 2],
    /// Zeros before and after the input.
    pub padding: [usize; 2],
    /// From one element of a window to the next.
    pub dilation: [usize; 2],
    /// Groups of channels, each convolved by itself.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

/// Output positions of a workgroup's tile in workgroup memory.
const TILE: usize = 64;

/// The fewest output channels of a group for which tiles pay.
const TILED_CHANNELS: usize = 12;

/// Output positions of a workgroup without tiles.
const DIRECT_POSITIONS: usize = 256;

/// What of the shapes the kernels need.
struct Sizes {
    /// Of x: n, channels, height, width.
    x: [usize; 4],
    /// Output channels, input channels of a group, kernel height, kernel width.
    weight: [usize; 4],
    /// Height and width of the output.
    out: [usize; 2],
}

impl Conv2d {
    fn window(&self, weight: [usize; 4]) -> [Sliding; 2] {
        Sliding::both([weight[2], weight[3]], self.stride, self.padding, self.dilation)
    }

    fn sizes(&self, inputs: &[Desc]) -> Result<Sizes> {
        let op = self.name();
        let x = four(op, "x", inputs[0].shape)?;
        let weight = four(op, "the weight", inputs[1].shape)?;
        let groups = self.groups;
        if groups == 0 || !weight[0].is_multiple_of(groups) {
            bail!(ShapeMismatch, "{op}: {} output channels can't be divided into {groups} groups", weight[0]);
        }
        if weight[1].checked_mul(groups) != Some(x[1]) {
            bail!(
                ShapeMismatch,
                "{op}: the weight's {} input channels times {groups} groups are not the {} of x {}",
                weight[1],
                x[1],
                inputs[0].shape
            );
        }
        if self.bias && inputs[2].shape.dims() != [weight[0]] {
            bail!(ShapeMismatch, "{op}: a bias {} for {} output channels", inputs[2].shape, weight[0]);
        }
        let [vertical, horizontal] = self.window(weight);
        let out = [vertical.windows(op, x[2], false)?, horizontal.windows(op, x[3], false)?];
        Ok(Sizes { x, weight, out })
    }

    fn params(&self, sizes: &Sizes) -> Vec<u32> {
        let Sizes { x: [n, channels, height, width], weight: [rows, group_channels, ..], out } = *sizes;
        let numbers = [n, channels, height, width, rows / self.groups, group_channels, self.groups, out[0], out[1]];
        let mut params: Vec<u32> = numbers.iter().map(|number| *number as u32).collect();
        params.extend(words(self.window(sizes.weight)));
        params
    }

    fn tiled(&self, sizes: &Sizes, capabilities: &Capabilities) -> Kernel {
        let [rows, group_channels, kernel_height, kernel_width] = sizes.weight;
        let rows = rows / self.groups;
        let tiles = (sizes.x[0] * sizes.out[0] * sizes.out[1]).div_ceil(TILE);
        // Smaller tiles where larger ones would be empty for the most part or too few for a GPU.
        let is_large = rows > 32 && tiles * rows.div_ceil(64) * self.groups >= 128;
        let tile_rows = if is_large { 64 } else { 32 };
        let mut defines =
            vec![("KERNEL_H", Define::U32(kernel_height as u32)), ("KERNEL_W", Define::U32(kernel_width as u32))];
        if is_large {
            defines.push(("ROWS_64", Define::Flag));
        }
        if (group_channels * kernel_height * kernel_width).is_multiple_of(4) {
            defines.push(("FOUR", Define::Flag));
        }
        Kernel {
            template: crate::shader!("conv2d.wgsl"),
            modules: MODULES,
            defines: self.with_bias(defines),
            params: self.params(sizes),
            grid: grid_2d(tiles * rows.div_ceil(tile_rows) * self.groups, capabilities.max_workgroups_per_dimension),
        }
    }

    fn direct(&self, sizes: &Sizes, capabilities: &Capabilities) -> Kernel {
        let rows = sizes.weight[0] / self.groups;
        let tiles = (sizes.x[0] * sizes.out[0] * sizes.out[1]).div_ceil(DIRECT_POSITIONS);
        // The more channels of an invocation, the fewer reads of the input.
        let (at_once, flags): (_, &[&'static str]) = match rows {
            1 => (1, &[]),
            2..=4 => (4, &["ROWS_4"]),
            _ => (8, &["ROWS_4", "ROWS_8"]),
        };
        let mut defines = vec![("ROWS", Define::U32(at_once as u32))];
        defines.extend(flags.iter().map(|flag| (*flag, Define::Flag)));
        Kernel {
            template: crate::shader!("conv2d_direct.wgsl"),
            modules: MODULES,
            defines: self.with_bias(defines),
            params: self.params(sizes),
            grid: grid_2d(tiles * rows.div_ceil(at_once) * self.groups, capabilities.max_workgroups_per_dimension),
        }
    }

    fn with_bias(&self, mut defines: Vec<(&'static str, Define)>) -> Vec<(&'static str, Define)> {
        if self.bias {
            defines.push(("BIAS", Define::Flag));
        }
        defines
    }
}

const MODULES: &[(&str, &str)] = &[("conv2d_tensors", crate::shader!("conv2d_tensors.wgsl"))];

impl Op for Conv2d {
    on_cpu!();

    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("conv2d", inputs, &[f32, f32, f32][..2 + usize::from(self.bias)])?;
        let Sizes { x, weight, out } = self.sizes(inputs)?;
        Ok(vec![output("conv2d", [x[0], weight[0], out[0], out[1]])?])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let sizes = self.sizes(inputs)?;
        if capabilities.software || sizes.weight[0] / self.groups < TILED_CHANNELS {
            return Ok(self.direct(&sizes, capabilities));
        }
        Ok(self.tiled(&sizes, capabilities))
    }
}

impl Reference for Conv2d {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let descs: Vec<Desc> = inputs.iter().map(HostTensor::desc).collect();
        let Sizes { x: [n, channels, h, w], weight: [rows, group_channels, kh, kw], out: [out_h, out_w] } =
            self.sizes(&descs)?;
        let (x, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let bias = if self.bias { inputs[2].to_f32()? } else { vec![0.0; rows] };
        let mut out = Vec::with_capacity(n * rows * out_h * out_w);
        for (image, row) in (0..n).flat_map(|image| (0..rows).map(move |row| (image, row))) {
            let first = image * channels + row / (rows / self.groups) * group_channels;
            for (y, column) in (0..out_h).flat_map(|y| (0..out_w).map(move |column| (y, column))) {
                let mut sum = f64::from(bias[row]);
                for (i, weight) in
                    weight[row * group_channels * kh * kw..][..group_channels * kh * kw].iter().enumerate()
                {
                    let (c, ky, kx) = (i / (kh * kw), i / kw % kh, i % kw);
                    let y = (y * self.stride[0] + ky * self.dilation[0]).wrapping_sub(self.padding[0]);
                    let column = (column * self.stride[1] + kx * self.dilation[1]).wrapping_sub(self.padding[1]);
                    if y < h && column < w {
                        sum += f64::from(*weight) * f64::from(x[((first + c) * h + y) * w + column]);
                    }
                }
                out.push(sum as f32);
            }
        }
        Ok(vec![HostTensor::f32(&[n, rows, out_h, out_w], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(91);
    // x, output channels, kernel, stride, padding, dilation, groups
    let shapes = [
        ([1, 1, 1, 1], 1, [1, 1], [1, 1], [0, 0], [1, 1], 1),
        ([2, 3, 17, 13], 16, [3, 3], [1, 1], [1, 1], [1, 1], 1),
        ([1, 16, 23, 29], 67, [3, 3], [2, 1], [0, 2], [1, 1], 1),
        ([3, 20, 7, 11], 33, [1, 1], [1, 1], [0, 0], [1, 1], 1),
        ([1, 7, 19, 19], 13, [3, 3], [2, 3], [4, 3], [2, 3], 1),
        // As large as the input, and larger than it without its padding.
        ([2, 5, 7, 6], 31, [7, 6], [1, 1], [0, 0], [1, 1], 1),
        ([1, 3, 2, 3], 12, [4, 5], [1, 2], [1, 2], [1, 1], 1),
        // Groups, large and small, and depthwise.
        ([2, 12, 9, 10], 40, [3, 3], [1, 1], [1, 1], [1, 1], 2),
        ([1, 8, 11, 9], 12, [3, 2], [1, 1], [1, 0], [1, 1], 4),
        ([2, 13, 31, 17], 13, [3, 3], [1, 1], [1, 1], [1, 1], 13),
        ([1, 6, 12, 12], 12, [5, 5], [2, 2], [2, 2], [1, 1], 6),
        // Of one dimension.
        ([2, 9, 1, 301], 17, [1, 5], [1, 2], [0, 2], [1, 1], 1),
        // Many tiles.
        ([1, 8, 92, 93], 65, [3, 3], [1, 1], [1, 1], [1, 1], 1),
        // A stride that only one window needs.
        ([1, 2, 3, 3], 2, [3, 3], [usize::MAX, 1 << 30], [0, 0], [1, 1], 1),
    ];
    let cases = shapes.into_iter().enumerate();
    cases
        .map(|(index, (x, rows, kernel, stride, padding, dilation, groups))| {
            let bias = index % 2 == 1;
            let mut inputs = vec![rng.tensor(&x), rng.tensor(&[rows, x[1] / groups, kernel[0], kernel[1]])];
            if bias {
                inputs.push(rng.tensor(&[rows]));
            }
            Case::new(Conv2d { stride, padding, dilation, groups, bias }, inputs, 1e-5)
        })
        .collect()
}
