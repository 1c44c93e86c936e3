//! Copies consecutive rows of a matrix, such as the last one before the output head.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [rows, columns]. Output: [count, columns], rows `first..first + count`.
#[derive(Clone)]
pub struct SliceRows {
    /// The first row.
    pub first: usize,
    /// The number of rows.
    pub count: usize,
}

impl Op for SliceRows {
    on_cpu!();

    fn name(&self) -> &'static str {
        "slice_rows"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("slice_rows", inputs, &[Some(DType::F32)])?;
        let (rows, columns) = inputs[0].shape.matrix()?;
        if self.first + self.count > rows {
            bail!(ShapeMismatch, "slice_rows: {} rows from {} of {rows}", self.count, self.first);
        }
        Ok(vec![Desc::f32(&[self.count, columns])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let n = self.count * columns;
        Ok(Kernel {
            template: crate::shader!("slice_rows.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![(self.first * columns) as u32, n as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SliceRows {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let x = inputs[0].to_f32()?;
        let rows = &x[self.first * columns..(self.first + self.count) * columns];
        Ok(vec![HostTensor::f32(&[self.count, columns], rows)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let x = &tensors.inputs[0];
        let (_, columns) = x.desc.shape.matrix()?;
        let rows = &x.f32s()?[self.first * columns..(self.first + self.count) * columns];
        tensors.outputs[0].write_f32s(rows)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(3);
    [(1, 1, 0, 1), (5, 7, 4, 1), (11, 263, 3, 6)]
        .iter()
        .map(|&(rows, columns, first, count)| {
            Case::new(SliceRows { first, count }, vec![rng.tensor(&[rows, columns])], 0.0)
        })
        .collect()
}
