//! The dot product of two tensors with the same number of elements.
//!
//! One workgroup, because WGSL has no barrier across workgroups, and always in the same order, so that the result is
//! reproducible. Sums are nested three deep: the error grows with the cube root of the length, not with the length. For 2^26
//! elements it is at most 1e-5 · Σ |x · y|.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::lanes_defines;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x, y, with the same number of elements. Output: [1].
#[derive(Clone)]
pub struct Dot;

/// Invocations of the workgroup, and the elements that they take in one step, four each.
const WORKGROUP: u32 = 256;
const STEP: usize = 1024;

impl Op for Dot {
    on_cpu!();

    fn name(&self) -> &'static str {
        "dot"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("dot", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (x, y) = (inputs[0].shape, inputs[1].shape);
        if x.elements() != y.elements() {
            bail!(ShapeMismatch, "dot: {x} has {} elements and {y} has {}", x.elements(), y.elements());
        }
        Ok(vec![Desc::f32(&[1])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        let steps = n.div_ceil(STEP);
        let mut run = 1usize;
        while run.pow(3) < steps {
            run += 1;
        }
        Ok(Kernel {
            template: crate::shader!("dot.wgsl"),
            modules: &[],
            defines: lanes_defines(WORKGROUP, None),
            params: vec![n as u32, steps as u32, run as u32],
            grid: [1, 1, 1],
        })
    }
}

impl Reference for Dot {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (x, y) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let sum: f64 = x.iter().zip(&y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
        Ok(vec![HostTensor::f32(&[1], &[sum as f32])])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(16);
    let shapes: [(&[usize], &[usize]); 8] = [
        (&[1], &[1]),
        (&[5], &[5]),
        (&[1023], &[1023]),
        (&[1024], &[32, 32]),
        (&[1025], &[25, 41]),
        (&[13, 61], &[61, 13]),
        (&[257, 1031], &[257, 1031]),
        (&[3, 1_000_003], &[3_000_009]),
    ];
    shapes
        .iter()
        .map(|(x, y)| {
            let inputs = vec![rng.tensor(x), rng.tensor(y)];
            let (mut sum, mut absolute) = (0f64, 0f64);
            let [x, y] = [&inputs[0], &inputs[1]].map(|input| input.to_f32().unwrap_or_default());
            for (x, y) in x.iter().zip(&y) {
                sum += f64::from(x * y);
                absolute += f64::from((x * y).abs());
            }
            // Terms of both signs cancel, so the bound is on the sum of their absolute values.
            Case::new(Dot, inputs, 1e-6 * absolute / sum.abs())
        })
        .collect()
}
