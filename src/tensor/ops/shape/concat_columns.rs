//! Puts the columns of two tensors side by side: for layers whose gate and up could not be joined, because their types differ.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: a [rows, n], b [rows, m]. Output: [rows, n + m], a row of a, then the same row of b.
#[derive(Clone)]
pub struct ConcatColumns;

impl Op for ConcatColumns {
    on_cpu!();

    fn name(&self) -> &'static str {
        "concat_columns"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("concat_columns", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let ((rows, n), (others, m)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        if rows != others {
            bail!(ShapeMismatch, "concat_columns: {} beside {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[rows, n + m])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((_, n), (_, m)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let elements = outputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("concat_columns.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![elements as u32, n as u32, m as u32],
            grid: grid_2d(elements.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for ConcatColumns {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((rows, n), (_, m)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let (a, b) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let out: Vec<f32> = (0..rows).flat_map(|row| [&a[row * n..][..n], &b[row * m..][..m]].concat()).collect();
        Ok(vec![HostTensor::f32(&[rows, n + m], &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [a, b] = &tensors.inputs[..] else { bail!(Internal, "concat_columns without two inputs") };
        let ((_, n), (_, m)) = (a.desc.shape.matrix()?, b.desc.shape.matrix()?);
        let (a, b) = (a.f32s()?, b.f32s()?);
        for (row, out) in tensors.outputs[0].f32s_mut()?.chunks_exact_mut((n + m).max(1)).enumerate() {
            out[..n].copy_from_slice(&a[row * n..][..n]);
            out[n..].copy_from_slice(&b[row * m..][..m]);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(42);
    [(1, 1, 1), (1, 96, 96), (7, 33, 64), (101, 128, 1031)]
        .map(|(rows, n, m)| Case::new(ConcatColumns, vec![rng.tensor(&[rows, n]), rng.tensor(&[rows, m])], 0.0))
        .into()
}
