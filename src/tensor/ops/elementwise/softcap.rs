//! Numbers that saturate at ±cap: `cap · tanh(x / cap)` (Gemma 2's logits; Bello et al. 2016), in place.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x (changed), of any shape.
#[derive(Clone)]
pub struct Softcap {
    /// The bound of the outputs; above 0.
    pub cap: f32,
}

impl Op for Softcap {
    on_cpu!();

    fn name(&self) -> &'static str {
        "softcap"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("softcap", inputs, &[Some(DType::F32)])?;
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("softcap.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, self.cap.to_bits()],
            grid: grid_2d(n.div_ceil(4 * 64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Softcap {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let cap = f64::from(self.cap);
        let capped: Vec<f32> =
            inputs[0].to_f32()?.iter().map(|x| (cap * (f64::from(*x) / cap).tanh()) as f32).collect();
        inputs[0].set_f32(&capped);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        rillm_cpu_kernels::softcap(self.cap, tensors.changed(0)?.f32s_mut()?);
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(71);
    // Small numbers, those around the cap, and far beyond it.
    let sizes = [(0.001, 30.0), (1.0, 0.3), (1.0, 2.0), (500.0, 30.0)];
    let mut cases = Vec::new();
    for (size, cap) in sizes {
        for dims in [[1, 1], [3, 97], [13, 1031]] {
            let x: Vec<f32> = rng.tensor(&dims).to_f32().unwrap_or_default().iter().map(|x| x * size).collect();
            cases.push(Case::new(Softcap { cap }, vec![HostTensor::f32(&dims, &x)], 1e-6));
        }
    }
    // The logits of a large vocabulary.
    cases.push(Case::new(Softcap { cap: 1.0 }, vec![rng.tensor(&[2, 262_208])], 1e-6));
    cases
}
