//! `rms_norm` whose output is in SoA, which products of small batches read.

use rillm_cpu_kernels::rms_norm;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::cpu::fits;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::on_cpu;
use crate::tensor::ops::RmsNorm;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{rows_to_soa, write_soa};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns], columns a multiple of 32; weight [columns]. Output: [rows, columns], each row in SoA.
#[derive(Clone)]
pub struct RmsNormSoa {
    /// ε in the formula.
    pub epsilon: f32,
}

impl Op for RmsNormSoa {
    on_cpu!();

    fn name(&self) -> &'static str {
        "rms_norm_soa"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let outputs = RmsNorm { epsilon: self.epsilon }.infer(inputs)?;
        if !inputs[0].shape.matrix()?.1.is_multiple_of(BLOCK) {
            bail!(ShapeMismatch, "rms_norm_soa: rows of {} are no multiple of {BLOCK} long", inputs[0].shape);
        }
        Ok(outputs)
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let team = Team::for_columns(columns, capabilities);
        Ok(Kernel {
            template: crate::shader!("rms_norm_soa.wgsl"),
            modules: &[],
            defines: team.defines(),
            params: vec![rows as u32, (columns / BLOCK) as u32, self.epsilon.to_bits()],
            grid: grid_2d(rows.div_ceil(team.teams()), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RmsNormSoa {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        RmsNorm { epsilon: self.epsilon }.reference(inputs)?.iter().map(rows_to_soa).collect()
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (x, weight) = (&tensors.inputs[0], tensors.inputs[1].f32s()?);
        let (_, columns) = x.desc.shape.matrix()?;
        let mut normed = vec![0.0; columns];
        let out = tensors.outputs[0].f32s_mut()?;
        for (x, out) in x.f32s()?.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
            fits(rms_norm(x, weight, self.epsilon, &mut normed))?;
            write_soa(&normed, out);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(64);
    [(1, 32), (2, 96), (3, 2048), (8, 2080), (7, 4128)]
        .map(|(rows, columns)| {
            let inputs = vec![rng.tensor(&[rows, columns]), rng.tensor(&[columns])];
            Case::new(RmsNormSoa { epsilon: 1e-5 }, inputs, 1e-6)
        })
        .into()
}
