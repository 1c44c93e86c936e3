//! Copies consecutive columns of every row, such as the queries from a product for queries, keys and values.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [rows, columns]. Output: [rows, count], columns `first..first + count`.
#[derive(Clone)]
pub struct SliceColumns {
    /// The first column.
    pub first: usize,
    /// The number of columns.
    pub count: usize,
}

impl Op for SliceColumns {
    on_cpu!();

    fn name(&self) -> &'static str {
        "slice_columns"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("slice_columns", inputs, &[Some(DType::F32)])?;
        let (rows, columns) = inputs[0].shape.matrix()?;
        if self.first + self.count > columns {
            bail!(ShapeMismatch, "slice_columns: {} columns from {} of {columns}", self.count, self.first);
        }
        Ok(vec![Desc::f32(&[rows, self.count])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let n = outputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("slice_columns.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, columns as u32, self.first as u32, self.count as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SliceColumns {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let x = inputs[0].to_f32()?;
        let out: Vec<f32> =
            x.chunks_exact(columns).flat_map(|row| &row[self.first..self.first + self.count]).copied().collect();
        Ok(vec![HostTensor::f32(&[rows, self.count], &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let x = &tensors.inputs[0];
        let (_, columns) = x.desc.shape.matrix()?;
        let x = x.f32s()?;
        for (row, out) in tensors.outputs[0].f32s_mut()?.chunks_exact_mut(self.count.max(1)).enumerate() {
            out.copy_from_slice(&x[row * columns + self.first..][..self.count]);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(72);
    [(1, 1, 0, 1), (5, 7, 4, 1), (11, 263, 3, 200), (130, 96, 64, 32)]
        .map(|(rows, columns, first, count)| {
            Case::new(SliceColumns { first, count }, vec![rng.tensor(&[rows, columns])], 0.0)
        })
        .into()
}
