//! The largest element of each window of a plane, and where it stands.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::convolution::sliding::{Sliding, words};
use crate::tensor::ops::pooling::pooled::pooled;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [n, c, h, w]. Outputs: the values [n, c, out_h, out_w] and, as u32, their places in the plane, row · w + column.
/// Pairs are of height and width.
///
/// The padding is −∞. Of equal elements the first one counts; a NaN is larger than anything, and of several the last one counts. A
/// window that is all in the padding, which dilation allows, gives −∞ and the place 0.
#[derive(Clone)]
pub struct MaxPool2d {
    /// Rows and columns of a window.
    pub kernel: [usize; 2],
    /// From one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns of −∞ before and after the input; at most half the kernel.
    pub padding: [usize; 2],
    /// From one element of a window to the next.
    pub dilation: [usize; 2],
    /// Whether the last windows may reach past the end of the input.
    pub ceil_mode: bool,
}

impl MaxPool2d {
    fn window(&self) -> [Sliding; 2] {
        Sliding::both(self.kernel, self.stride, self.padding, self.dilation)
    }
}

impl Op for MaxPool2d {
    on_cpu!();

    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.name(), inputs, &[Some(DType::F32)])?;
        let values = pooled(self.name(), inputs[0], self.window(), self.ceil_mode)?;
        Ok(vec![values, Desc { dtype: DType::U32, ..values }])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = outputs[0].shape.elements();
        let sizes = [inputs[0], outputs[0]].map(|desc| desc.shape);
        let sizes = sizes.iter().flat_map(|shape| shape.dims().iter().skip(2)).map(|size| *size as u32);
        let mut params = vec![n as u32, f32::NEG_INFINITY.to_bits()];
        params.extend(sizes);
        params.extend(words(self.window()));
        Ok(Kernel {
            template: crate::shader!("max_pool2d.wgsl"),
            modules: &[],
            defines: vec![],
            params,
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MaxPool2d {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let dims = self.infer(&[inputs[0].desc()])?[0].shape;
        let (x, &[n, c, h, w], &[_, _, out_h, out_w]) = (inputs[0].to_f32()?, inputs[0].shape.dims(), dims.dims())
        else {
            bail!(ShapeMismatch, "max_pool2d: x {}", inputs[0].shape)
        };
        let (mut values, mut places) = (Vec::new(), Vec::new());
        for i in 0..n * c * out_h * out_w {
            let plane = &x[i / (out_h * out_w) * h * w..][..h * w];
            let (y, column) = (i / out_w % out_h * self.stride[0], i % out_w * self.stride[1]);
            let mut best: Option<(f32, usize)> = None;
            for j in 0..self.kernel[0] * self.kernel[1] {
                let y = (y + j / self.kernel[1] * self.dilation[0]).wrapping_sub(self.padding[0]);
                let column = (column + j % self.kernel[1] * self.dilation[1]).wrapping_sub(self.padding[1]);
                if y < h && column < w {
                    let value = plane[y * w + column];
                    if best.is_none_or(|(largest, _)| value > largest || value.is_nan()) {
                        best = Some((value, y * w + column));
                    }
                }
            }
            let (value, place) = best.unwrap_or((f32::NEG_INFINITY, 0));
            values.push(value);
            places.push(place as u32);
        }
        Ok(vec![HostTensor::f32(dims.dims(), &values), HostTensor::u32(dims.dims(), &places)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(93);
    // x, kernel, stride, padding, dilation, whether the last windows may reach past the end
    let shapes = [
        ([1, 1, 1, 1], [1, 1], [1, 1], [0, 0], [1, 1], false),
        ([2, 3, 17, 13], [2, 2], [2, 2], [0, 0], [1, 1], false),
        ([2, 3, 17, 13], [2, 2], [2, 2], [0, 0], [1, 1], true),
        ([1, 5, 23, 29], [3, 3], [2, 2], [1, 1], [1, 1], false),
        ([3, 2, 11, 8], [3, 5], [1, 3], [1, 2], [2, 1], true),
        // As large as the input, and larger than it where the last window may reach past the end.
        ([1, 7, 6, 5], [6, 5], [1, 1], [0, 0], [1, 1], false),
        ([1, 2, 2, 7], [3, 3], [2, 4], [0, 1], [1, 1], true),
        // A last window that would begin in the padding is left out.
        ([1, 3, 4, 5], [2, 3], [3, 4], [1, 1], [1, 1], true),
        // The second window's elements are all in the padding.
        ([1, 1, 4, 3], [2, 1], [1, 2], [1, 0], [5, 1], false),
        ([1, 1, 3, 3], [3, 2], [usize::MAX, 1 << 30], [1, 0], [1, 1], true),
        ([1, 9, 67, 131], [3, 3], [1, 2], [0, 1], [1, 1], false),
    ];
    let mut cases = Vec::new();
    for (index, (dims, kernel, stride, padding, dilation, ceil_mode)) in shapes.into_iter().enumerate() {
        let mut x = rng.tensor(&dims).to_f32().unwrap_or_default();
        if index % 2 == 1 {
            // So that many are equal, and some not numbers.
            for x in &mut x {
                *x = (*x * 2.0).round();
                if rng.below(20) == 0 {
                    *x = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, f32::MIN][rng.below(4)];
                }
            }
        }
        let op = MaxPool2d { kernel, stride, padding, dilation, ceil_mode };
        cases.push(Case::new(op, vec![HostTensor::f32(&dims, &x)], 0.0));
    }
    let lowest = HostTensor::f32(&[1, 1, 3, 5], &[f32::NEG_INFINITY; 15]);
    let op = MaxPool2d { kernel: [2, 2], stride: [1, 1], padding: [1, 1], dilation: [1, 1], ceil_mode: false };
    cases.push(Case::new(op, vec![lowest], 0.0));
    cases
}
