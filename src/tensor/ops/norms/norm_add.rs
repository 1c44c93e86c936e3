//! Adds the RMS norm of the output of attention or feed-forward to one token's residual stream, in place (the norms after a layer's
//! parts in Gemma 2 and 3: "sandwich norm", Ding et al. 2021).

use rillm_cpu_kernels::rms_norm;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::cpu::fits;
use crate::tensor::exec::{lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [1, columns] (changed: x ← (x + y / √(mean y² + ε) · weight) · factor), y [1, columns], weight [columns]. All have the same order of
/// columns, which may be SoA (`tensor/soa.rs`).
#[derive(Clone, Copy, Debug)]
pub struct NormAdd {
    /// ε in the formula.
    pub epsilon: f32,
    /// Of the sum; 1 leaves it as it is.
    pub factor: f32,
}

const WORKGROUP: u32 = 256;

impl Op for NormAdd {
    on_cpu!();

    fn name(&self) -> &'static str {
        "norm_add"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("norm_add", inputs, &[f32, f32, f32])?;
        let columns = inputs[2].shape.elements();
        if inputs[0].shape.dims() != [1, columns] || inputs[1].shape != inputs[0].shape || !columns.is_multiple_of(4) {
            bail!(
                ShapeMismatch,
                "norm_add: x {}, y {}, weight {}; wanted one row of a multiple of 4",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let columns = inputs[2].shape.elements();
        let lanes = subgroup_lanes(capabilities, 32);
        // One row, so one workgroup: large, unless there would be many subgroups to synchronise.
        let workgroup = if capabilities.software {
            lanes.unwrap_or(64)
        } else {
            WORKGROUP.min(capabilities.max_invocations_per_workgroup)
        };
        Ok(Kernel {
            template: crate::shader!("norm_add.wgsl"),
            modules: &[],
            defines: lanes_defines(workgroup, lanes),
            params: vec![columns as u32 / 4, self.epsilon.to_bits(), self.factor.to_bits()],
            grid: [1, 1, 1],
        })
    }
}

impl Reference for NormAdd {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (mut x, y, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let mean = y.iter().map(|y| f64::from(*y).powi(2)).sum::<f64>() / y.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.epsilon)).sqrt();
        for ((x, y), w) in x.iter_mut().zip(&y).zip(&weight) {
            *x = ((f64::from(*x) + f64::from(*y) * scale * f64::from(*w)) * f64::from(self.factor)) as f32;
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, y, weight] = &mut tensors.inputs[..] else { bail!(Internal, "norm_add without three inputs") };
        let y = y.f32s()?;
        let mut normed = vec![0.0; y.len()];
        fits(rms_norm(y, weight.f32s()?, self.epsilon, &mut normed))?;
        x.f32s_mut()?.iter_mut().zip(&normed).for_each(|(x, y)| *x = (*x + y) * self.factor);
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(79);
    [(4, 1.0), (32, 0.25), (96, 1.0), (1152, 1.0), (2560, 17.5), (5376, 1.0)]
        .map(|(columns, factor)| {
            let inputs = vec![rng.tensor(&[1, columns]), rng.tensor(&[1, columns]), rng.tensor(&[columns])];
            Case::new(NormAdd { epsilon: 1e-6, factor }, inputs, 1e-5)
        })
        .into()
}
