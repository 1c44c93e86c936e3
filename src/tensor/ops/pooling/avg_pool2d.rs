//! The mean of each window of a plane.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::convolution::sliding::{Sliding, words};
use crate::tensor::ops::pooling::pooled::pooled;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [n, c, h, w]. Output: [n, c, out_h, out_w]. Pairs are of height and width.
#[derive(Clone)]
pub struct AvgPool2d {
    /// Rows and columns of a window.
    pub kernel: [usize; 2],
    /// From one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns of zeros before and after the input; at most half the kernel.
    pub padding: [usize; 2],
    /// Whether the last windows may reach past the padding; what lies there does not count.
    pub ceil_mode: bool,
    /// Whether the padding counts as elements of the mean.
    pub count_include_pad: bool,
}

impl AvgPool2d {
    fn window(&self) -> [Sliding; 2] {
        Sliding::both(self.kernel, self.stride, self.padding, [1, 1])
    }
}

impl Op for AvgPool2d {
    on_cpu!();

    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.name(), inputs, &[Some(DType::F32)])?;
        Ok(vec![pooled(self.name(), inputs[0], self.window(), self.ceil_mode)?])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = outputs[0].shape.elements();
        let mut params = vec![n as u32];
        let sizes = inputs[0].shape.dims().iter().skip(2).chain(outputs[0].shape.dims().iter().skip(2));
        params.extend(sizes.map(|size| *size as u32));
        params.extend(words(self.window()));
        let defines = if self.count_include_pad { vec![("COUNT_PADDING", Define::Flag)] } else { vec![] };
        Ok(Kernel {
            template: crate::shader!("avg_pool2d.wgsl"),
            modules: &[],
            defines,
            params,
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AvgPool2d {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let dims = self.infer(&[inputs[0].desc()])?[0].shape;
        let (x, &[n, c, h, w], &[_, _, out_h, out_w]) = (inputs[0].to_f32()?, inputs[0].shape.dims(), dims.dims())
        else {
            bail!(ShapeMismatch, "avg_pool2d: x {}", inputs[0].shape)
        };
        let mut out = Vec::new();
        for i in 0..n * c * out_h * out_w {
            let plane = &x[i / (out_h * out_w) * h * w..][..h * w];
            let (y, column) = (i / out_w % out_h * self.stride[0], i % out_w * self.stride[1]);
            let (mut sum, mut inside, mut padded) = (0f64, 0, 0);
            for j in 0..self.kernel[0] * self.kernel[1] {
                // Counted from the edge of the padding.
                let (y, column) = (y + j / self.kernel[1], column + j % self.kernel[1]);
                padded += usize::from(y < h + 2 * self.padding[0] && column < w + 2 * self.padding[1]);
                let (y, column) = (y.wrapping_sub(self.padding[0]), column.wrapping_sub(self.padding[1]));
                if y < h && column < w {
                    sum += f64::from(plane[y * w + column]);
                    inside += 1;
                }
            }
            out.push((sum / if self.count_include_pad { padded } else { inside } as f64) as f32);
        }
        Ok(vec![HostTensor::f32(dims.dims(), &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(94);
    // x, kernel, stride, padding, whether the last windows may reach past the end
    let shapes = [
        ([1, 1, 1, 1], [1, 1], [1, 1], [0, 0], false),
        ([2, 3, 17, 13], [2, 2], [2, 2], [0, 0], false),
        ([2, 3, 17, 13], [2, 2], [2, 2], [0, 0], true),
        ([1, 5, 23, 29], [3, 3], [2, 2], [1, 1], true),
        ([3, 2, 11, 8], [3, 5], [2, 3], [1, 2], true),
        ([1, 7, 6, 5], [6, 5], [1, 1], [0, 0], false),
        ([1, 2, 2, 7], [3, 3], [2, 4], [0, 1], true),
        ([1, 3, 4, 5], [2, 3], [3, 4], [1, 1], true),
        ([1, 1, 3, 3], [3, 2], [usize::MAX, 1 << 30], [1, 0], true),
        ([1, 9, 67, 131], [4, 3], [1, 2], [2, 1], false),
    ];
    let mut cases = Vec::new();
    for (dims, kernel, stride, padding, ceil_mode) in shapes {
        for count_include_pad in [false, true] {
            let op = AvgPool2d { kernel, stride, padding, ceil_mode, count_include_pad };
            cases.push(Case::new(op, vec![rng.tensor(&dims)], 2e-6));
        }
    }
    // Whatever is not finite stays in its windows.
    let mut x = rng.tensor(&[1, 1, 7, 9]).to_f32().unwrap_or_default();
    for (at, special) in [(3, f32::NAN), (30, f32::INFINITY), (33, f32::NEG_INFINITY)] {
        x[at] = special;
    }
    let op = AvgPool2d { kernel: [2, 3], stride: [2, 2], padding: [1, 1], ceil_mode: false, count_include_pad: false };
    cases.push(Case::new(op, vec![HostTensor::f32(&[1, 1, 7, 9], &x)], 2e-6));
    cases
}
