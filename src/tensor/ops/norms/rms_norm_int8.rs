//! Root mean square layer normalisation (Zhang, Sennrich 2019) whose result is quantised at once for a product of int8.

use super::rms_norm::RmsNorm;
use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::on_cpu;
use crate::tensor::ops::products::quantize::{QUANTIZED_TOLERANCE, quantize_reference, quantized};
use crate::tensor::quant::BLOCK;
use crate::tensor::{Case, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns], weight [columns]. Outputs: those of `quantize`.
#[derive(Clone)]
pub struct RmsNormInt8 {
    /// ε in the formula.
    pub epsilon: f32,
}

impl Op for RmsNormInt8 {
    on_cpu!();

    fn name(&self) -> &'static str {
        "rms_norm_int8"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        RmsNorm { epsilon: self.epsilon }.infer(inputs)?;
        let (rows, columns) = inputs[0].shape.matrix()?;
        quantized("rms_norm_int8", rows, columns)
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        Ok(Kernel {
            template: crate::shader!("rms_norm_int8.wgsl"),
            modules: &[],
            defines: lanes_defines(lanes.unwrap_or(64), lanes),
            params: vec![rows as u32, (columns / BLOCK) as u32, self.epsilon.to_bits()],
            grid: grid_2d(rows, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RmsNormInt8 {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let normal = RmsNorm { epsilon: self.epsilon }.reference(inputs)?;
        Ok(quantize_reference(&normal[0].to_f32()?, rows, columns))
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(24);
    [(1, 32), (3, 96), (17, 2048), (5, 4128)]
        .iter()
        .map(|&(rows, columns)| {
            let inputs = vec![rng.tensor(&[rows, columns]), rng.tensor(&[columns])];
            Case::new(RmsNormInt8 { epsilon: 1e-5 }, inputs, QUANTIZED_TOLERANCE)
        })
        .collect()
}
