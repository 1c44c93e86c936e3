//! Gated linear units (Shazeer 2020, "GLU Variants Improve Transformer"): `silu(gate) · up`, which is SwiGLU, or with GELU GEGLU.

use rillm_cpu_kernels::gate;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Activation;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: gate, up, of one shape. Output: the same shape.
#[derive(Clone, Default)]
pub struct Swiglu {
    /// The function that the gate goes through.
    pub activation: Activation,
}

impl Op for Swiglu {
    on_cpu!();

    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("swiglu", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        if inputs[0].shape != inputs[1].shape {
            bail!(ShapeMismatch, "swiglu: {} and {} differ in shape", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("swiglu.wgsl"),
            modules: &[],
            defines: self.activation.defines(),
            params: vec![n as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Swiglu {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (gate, up) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let product: Vec<f32> =
            gate.iter().zip(&up).map(|(gate, up)| swiglu_reference(self.activation, *gate, *up)).collect();
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &product)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [of_gate, up] = &tensors.inputs[..] else { bail!(Internal, "swiglu without two inputs") };
        gate(self.activation.on_cpu(), of_gate.f32s()?, up.f32s()?, tensors.outputs[0].f32s_mut()?);
        Ok(())
    }
}

pub(super) fn swiglu_reference(activation: Activation, gate: f32, up: f32) -> f32 {
    (activation.of(f64::from(gate)) * f64::from(up)) as f32
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(2);
    let mut cases = Vec::new();
    for activation in Activation::ALL {
        for dims in [[1, 1], [3, 97], [19, 512], [101, 1409]] {
            cases.push(Case::new(Swiglu { activation }, vec![rng.tensor(&dims), rng.tensor(&dims)], 1e-5));
        }
        // Far out on both sides, where a simple sigmoid overflows.
        let gate = HostTensor::f32(&[1, 6], &[-200.0, -90.0, -20.0, 20.0, 90.0, 200.0]);
        cases.push(Case::new(Swiglu { activation }, vec![gate, HostTensor::f32(&[1, 6], &[1.0; 6])], 1e-5));
    }
    cases
}
