//! Matrix product of two f32 tensors, neither of them transposed.
//!
//! Each invocation computes 4 × 4 outputs in registers; operands are read through the caches, without workgroup memory.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: a [m, k], b [k, n]. Output: [m, n].
#[derive(Clone)]
pub struct MatMulF32;

/// Rows and columns that a workgroup of 16 × 4 invocations computes.
const TILE_ROWS: usize = 16;
const TILE_COLUMNS: usize = 64;

impl Op for MatMulF32 {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_mul_f32"
    }

    fn title(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.title(), inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let ((m, k), (inner, n)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        if k != inner {
            bail!(ShapeMismatch, "matmul: inner dimensions differ, {} and {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[m, n])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let ((m, k), (_, n)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        Ok(Kernel {
            template: crate::shader!("mat_mul_f32.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![m as u32, k as u32, n as u32],
            grid: [n.div_ceil(TILE_COLUMNS) as u32, m.div_ceil(TILE_ROWS) as u32, 1],
        })
    }
}

impl Reference for MatMulF32 {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((m, k), (_, n)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let (a, b) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let mut out = Vec::with_capacity(m * n);
        let mut row = vec![0f64; n];
        for i in 0..m {
            row.fill(0.0);
            for j in 0..k {
                let a = f64::from(a[i * k + j]);
                for (sum, b) in row.iter_mut().zip(&b[j * n..][..n]) {
                    *sum += a * f64::from(*b);
                }
            }
            out.extend(row.iter().map(|sum| *sum as f32));
        }
        Ok(vec![HostTensor::f32(&[m, n], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(17);
    [(1, 1, 1), (1, 257, 3), (3, 1, 5), (5, 7, 1), (16, 64, 64), (17, 31, 65), (67, 131, 257), (127, 1031, 61)]
        .iter()
        .map(|&(m, k, n)| Case::new(MatMulF32, vec![rng.tensor(&[m, k]), rng.tensor(&[k, n])], 1e-5))
        .collect()
}
