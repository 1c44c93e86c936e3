//! x · sigmoid(gate): the output gate of attention, one for each element or one for each head. `gate_rows` has one number for each row.

use rillm_cpu_kernels::{Activation, activate, multiply};

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::zeros;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{from_soa, to_soa, write_row};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns] (changed), whose rows are in SoA if `soa`, and gates [rows, gates], whose rows are in their order. A gate is for columns /
/// gates neighbours.
#[derive(Clone, Copy, Debug)]
pub struct SigmoidGate {
    /// The rows of x are in SoA (`tensor/soa.rs`).
    pub soa: bool,
}

impl Op for SigmoidGate {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sigmoid_gate"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("sigmoid_gate", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (rows, columns) = inputs[0].shape.matrix()?;
        let (gate_rows, gates) = inputs[1].shape.matrix()?;
        let fits = gate_rows == rows && gates > 0 && columns.is_multiple_of(gates);
        if !fits || (self.soa && !columns.is_multiple_of(BLOCK)) {
            bail!(
                ShapeMismatch,
                "sigmoid_gate: x {}, gates {}; wanted as many rows, columns that gates divide, and in SoA a multiple of {BLOCK} columns",
                inputs[0].shape,
                inputs[1].shape
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((rows, columns), (_, gates)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        Ok(Kernel {
            template: crate::shader!("sigmoid_gate.wgsl"),
            modules: &[],
            defines: self.soa.then_some(("SOA", Define::Flag)).into_iter().collect(),
            params: vec![(rows * columns) as u32, columns as u32, (columns / gates.max(1)) as u32],
            grid: grid_2d((rows * columns).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SigmoidGate {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((_, columns), (_, gates)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let gate = inputs[1].to_f32()?;
        let mut gated = Vec::new();
        for (x, gate) in inputs[0].to_f32()?.chunks_exact(columns).zip(gate.chunks_exact(gates)) {
            let mut x = if self.soa { from_soa(x) } else { x.to_vec() };
            for (x, gate) in x.chunks_exact_mut(columns / gates).zip(gate) {
                for x in x {
                    *x = (f64::from(*x) / (1.0 + (-f64::from(*gate)).exp())) as f32;
                }
            }
            gated.extend(if self.soa { to_soa(&x) } else { x });
        }
        inputs[0].set_f32(&gated);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, gate] = &mut tensors.inputs[..] else { bail!(Internal, "sigmoid_gate without two inputs") };
        let ((_, columns), (_, gates)) = (x.desc.shape.matrix()?, gate.desc.shape.matrix()?);
        let mut of_gates = zeros(gates)?;
        // A gate for each column: in their order, and in that of x.
        let (mut of_columns, mut of_x) = (zeros(columns)?, zeros(columns)?);
        for (x, gate) in x.f32s_mut()?.chunks_exact_mut(columns).zip(gate.f32s()?.chunks_exact(gates)) {
            of_gates.copy_from_slice(gate);
            activate(Activation::Sigmoid, &mut of_gates);
            for (columns, gate) in of_columns.chunks_exact_mut(columns / gates).zip(&of_gates) {
                columns.fill(*gate);
            }
            write_row(&of_columns, self.soa, &mut of_x);
            multiply(x, &of_x);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(143);
    let case = |(rows, columns, gates, soa): (usize, usize, usize, bool)| {
        let gate: Vec<f32> = (0..rows * gates).map(|_| rng.signed() * 9.0).collect();
        let gate = HostTensor::f32(&[rows, gates], &gate);
        Case::new(SigmoidGate { soa }, vec![rng.tensor(&[rows, columns]), gate], 1e-5)
    };
    let mut cases: Vec<Case> = [
        (1, 1, 1, false),
        (1, 32, 32, true),
        (3, 96, 96, true),
        (5, 70, 70, false),
        (3, 70, 5, false),
        (2, 96, 6, true),
    ]
    .into_iter()
    .map(case)
    .collect();
    // Far out, where a simple sigmoid overflows.
    let gate = HostTensor::f32(&[1, 4], &[-200.0, -30.0, 30.0, 200.0]);
    cases.push(Case::new(SigmoidGate { soa: false }, vec![rng.tensor(&[1, 4]), gate], 1e-5));
    cases
}
