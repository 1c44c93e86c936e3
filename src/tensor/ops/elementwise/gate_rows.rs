//! Multiplies each row by the sigmoid of a number of its own, in place: the gate of an expert that every token uses (Qwen2-MoE).

use rillm_cpu_kernels::scale;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns] (changed), gates [rows, 1].
#[derive(Clone)]
pub struct GateRows;

impl Op for GateRows {
    on_cpu!();

    fn name(&self) -> &'static str {
        "gate_rows"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("gate_rows", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        if inputs[1].shape.elements() != rows {
            bail!(ShapeMismatch, "gate_rows: x {}, gates {}, wanted one a row", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("gate_rows.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, columns as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for GateRows {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (mut x, gates) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        for (row, gate) in x.chunks_exact_mut(columns).zip(gates) {
            let factor = 1.0 / (1.0 + (-f64::from(gate)).exp());
            row.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, gates] = &mut tensors.inputs[..] else { bail!(Internal, "gate_rows without two inputs") };
        let (_, columns) = x.desc.shape.matrix()?;
        for (row, gate) in x.f32s_mut()?.chunks_exact_mut(columns).zip(gates.f32s()?) {
            scale(row, 1.0 / (1.0 + (-gate).exp()));
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(82);
    let mut cases: Vec<Case> = [[1, 1], [3, 97], [130, 71]]
        .iter()
        .map(|dims| Case::new(GateRows, vec![rng.tensor(dims), rng.tensor(&[dims[0], 1])], 1e-6))
        .collect();
    // Far out, where a simple sigmoid overflows.
    let gates = HostTensor::f32(&[4, 1], &[-200.0, -30.0, 30.0, 200.0]);
    cases.push(Case::new(GateRows, vec![rng.tensor(&[4, 5]), gates], 1e-6));
    cases
}
