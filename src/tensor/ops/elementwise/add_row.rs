//! Adds one vector to every row, in place: the bias of a projection.

use rillm_cpu_kernels::add;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns] (changed), row [columns].
#[derive(Clone)]
pub struct AddRow;

impl Op for AddRow {
    on_cpu!();

    fn name(&self) -> &'static str {
        "add_row"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("add_row", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        if inputs[1].shape.dims() != [columns] {
            bail!(ShapeMismatch, "add_row: x {}, row {}, wanted one of {columns}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("add_row.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, inputs[1].shape.elements() as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AddRow {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let row = inputs[1].to_f32()?;
        let mut x = inputs[0].to_f32()?;
        for (index, value) in x.iter_mut().enumerate() {
            *value += row[index % row.len()];
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, row] = &mut tensors.inputs[..] else { bail!(Internal, "add_row without two inputs") };
        let row = row.f32s()?;
        for x in x.f32s_mut()?.chunks_exact_mut(row.len().max(1)) {
            add(x, row);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(31);
    [[1, 1], [1, 37], [13, 61], [257, 1031]]
        .iter()
        .map(|dims| Case::new(AddRow, vec![rng.tensor(dims), rng.tensor(&dims[1..])], 1e-6))
        .collect()
}
