//! Root mean square layer normalisation (Zhang, Sennrich 2019): `x / √(mean x² + ε) · weight`, row by row.

use rillm_cpu_kernels::rms_norm;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::fits;
use crate::tensor::exec::{grid_2d, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns], weight [columns]. Output: [rows, columns].
#[derive(Clone)]
pub struct RmsNorm {
    /// ε in the formula.
    pub epsilon: f32,
}

impl Op for RmsNorm {
    on_cpu!();

    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("rms_norm", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        if inputs[1].shape.dims() != [columns] {
            bail!(ShapeMismatch, "rms_norm: x {} and weight {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        // A workgroup is one team: its rows are loops of one length, so lanes stay together.
        let lanes = subgroup_lanes(capabilities, 32);
        let team = lanes.and_then(|_| Team::for_long_rows(columns, capabilities));
        let team = team.unwrap_or_else(|| Team::of_workgroup(lanes.unwrap_or(64), capabilities));
        let mut defines = team.defines();
        let width = if columns.is_multiple_of(4) { 4 } else { 1 };
        if width == 4 {
            defines.push(("FOUR", Define::Flag));
        }
        defines.push(("AT_ONCE", team.at_once(columns / width, capabilities)));
        Ok(Kernel {
            template: crate::shader!("rms_norm.wgsl"),
            modules: &[],
            defines,
            params: vec![rows as u32, columns as u32, self.epsilon.to_bits()],
            grid: grid_2d(rows, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RmsNorm {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (x, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let mut out = Vec::with_capacity(x.len());
        for row in x.chunks_exact(columns) {
            let mean: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / columns as f64;
            let scale = 1.0 / (mean + f64::from(self.epsilon)).sqrt();
            out.extend(row.iter().zip(&weight).map(|(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32));
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (x, weight) = (&tensors.inputs[0], tensors.inputs[1].f32s()?);
        let (_, columns) = x.desc.shape.matrix()?;
        let out = tensors.outputs[0].f32s_mut()?;
        for (x, out) in x.f32s()?.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
            fits(rms_norm(x, weight, self.epsilon, out))?;
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(7);
    [(1, 1), (1, 31), (3, 97), (17, 256), (5, 4099), (1, 2880), (3, 8224)]
        .iter()
        .map(|&(rows, columns)| {
            let inputs = vec![rng.tensor(&[rows, columns]), rng.tensor(&[columns])];
            Case::new(RmsNorm { epsilon: 1e-5 }, inputs, 1e-5)
        })
        .collect()
}
