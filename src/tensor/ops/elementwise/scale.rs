//! A multiple of a tensor: `factor · x`.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x. Output: the same shape.
#[derive(Clone)]
pub struct Scale {
    /// Every element is multiplied by it.
    pub factor: f32,
}

impl Op for Scale {
    on_cpu!();

    fn name(&self) -> &'static str {
        "scale"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("scale", inputs, &[Some(DType::F32)])?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("scale.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, self.factor.to_bits()],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Scale {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let factor = f64::from(self.factor);
        let out: Vec<f32> = inputs[0].to_f32()?.iter().map(|x| (f64::from(*x) * factor) as f32).collect();
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let x = tensors.inputs[0].f32s()?;
        tensors.outputs[0].f32s_mut()?.iter_mut().zip(x).for_each(|(out, x)| *out = x * self.factor);
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(14);
    let shapes: [(&[usize], f32); 5] =
        [(&[1], -1.0), (&[37], 0.0), (&[13, 61], 0.1), (&[3, 5, 7, 11], -1.7e6), (&[257, 1031], 3e-7)];
    shapes.iter().map(|&(dims, factor)| Case::new(Scale { factor }, vec![rng.tensor(dims)], 1e-6)).collect()
}
