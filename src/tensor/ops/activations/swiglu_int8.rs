//! SwiGLU (Shazeer 2020, "GLU Variants Improve Transformer") of gate and up side by side, quantised at once for a product of
//! int8.

use super::swiglu_fused::{halves, swiglu_of_halves};
use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::on_cpu;
use crate::tensor::ops::Activation;
use crate::tensor::ops::products::quantize::{QUANTIZED_TOLERANCE, quantize_reference, quantized};
use crate::tensor::quant::BLOCK;
use crate::tensor::{Case, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: gate_up [tokens, 2 · columns], each token's gate first. Outputs: those of `quantize` for [tokens, columns].
#[derive(Clone, Default)]
pub struct SwigluInt8 {
    /// The function that the gate goes through.
    pub activation: Activation,
}

impl Op for SwigluInt8 {
    on_cpu!();

    fn name(&self) -> &'static str {
        "swiglu_int8"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let [tokens, columns] = halves("swiglu_int8", inputs)?;
        quantized("swiglu_int8", tokens, columns)
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let [tokens, columns] = halves("swiglu_int8", inputs)?;
        let blocks_per_row = columns / BLOCK;
        let blocks = tokens * blocks_per_row;
        Ok(Kernel {
            template: crate::shader!("swiglu_int8.wgsl"),
            modules: &[],
            defines: self.activation.defines(),
            params: vec![blocks as u32, blocks_per_row as u32],
            grid: grid_2d(blocks.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SwigluInt8 {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [tokens, columns] = halves("swiglu_int8", &[inputs[0].desc()])?;
        Ok(quantize_reference(&swiglu_of_halves(self.activation, &inputs[0].to_f32()?, columns), tokens, columns))
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(26);
    let shapes = [[1, 2 * 32], [3, 2 * 96], [19, 2 * 512], [101, 2 * 1408]];
    let cases = Activation::ALL.into_iter().flat_map(|activation| shapes.map(|dims| (activation, dims)));
    let case = |(activation, dims): (_, [usize; 2])| {
        Case::new(SwigluInt8 { activation }, vec![rng.tensor(&dims)], QUANTIZED_TOLERANCE)
    };
    cases.map(case).collect()
}
