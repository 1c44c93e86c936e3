//! Element-wise sum, in place: `x += y`.

use rillm_cpu_kernels::add;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x (changed), y, of one shape.
#[derive(Clone)]
pub struct Add;

impl Op for Add {
    on_cpu!();

    fn name(&self) -> &'static str {
        "add"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("add", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        if inputs[0].shape != inputs[1].shape {
            bail!(ShapeMismatch, "add: {} and {} differ in shape", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("add.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Add {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let y = inputs[1].to_f32()?;
        let sum: Vec<f32> = inputs[0].to_f32()?.iter().zip(&y).map(|(x, y)| x + y).collect();
        inputs[0].set_f32(&sum);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, y] = &mut tensors.inputs[..] else { bail!(Internal, "add without two inputs") };
        add(x.f32s_mut()?, y.f32s()?);
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(1);
    [[1, 1], [1, 37], [13, 61], [257, 1031]]
        .iter()
        .map(|dims| Case::new(Add, vec![rng.tensor(dims), rng.tensor(dims)], 1e-6))
        .collect()
}
