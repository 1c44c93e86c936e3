//! `swiglu_fused` whose output is in SoA, which products of small batches read.

use rillm_cpu_kernels::gate;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::on_cpu;
use crate::tensor::ops::{Activation, SwigluFused};
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{rows_to_soa, write_soa};
use crate::tensor::{Case, CpuTensors, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: gate and up [tokens, 2 · columns], columns a multiple of 32. Output: [tokens, columns], each row in SoA.
#[derive(Clone, Default)]
pub struct SwigluSoa {
    /// The function that the gate goes through.
    pub activation: Activation,
}

impl Op for SwigluSoa {
    on_cpu!();

    fn name(&self) -> &'static str {
        "swiglu_soa"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let outputs = SwigluFused { activation: self.activation }.infer(inputs)?;
        if !inputs[0].shape.matrix()?.1.is_multiple_of(2 * BLOCK) {
            bail!(ShapeMismatch, "swiglu_soa: halves of {} are no multiple of {BLOCK} long", inputs[0].shape);
        }
        Ok(outputs)
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let words = tokens * columns / 8;
        Ok(Kernel {
            template: crate::shader!("swiglu_soa.wgsl"),
            modules: &[],
            defines: self.activation.defines(),
            params: vec![words as u32, (columns / 2 / BLOCK) as u32],
            grid: grid_2d(words.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SwigluSoa {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        SwigluFused { activation: self.activation }.reference(inputs)?.iter().map(rows_to_soa).collect()
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (_, both) = tensors.inputs[0].desc.shape.matrix()?;
        let columns = both / 2;
        let mut gated = vec![0.0; columns];
        let out = tensors.outputs[0].f32s_mut()?.chunks_exact_mut(columns);
        for (row, out) in tensors.inputs[0].f32s()?.chunks_exact(both).zip(out) {
            gate(self.activation.on_cpu(), &row[..columns], &row[columns..], &mut gated);
            write_soa(&gated, out);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(65);
    let shapes = [[1, 64], [2, 192], [5, 1984], [8, 9728]];
    let cases = Activation::ALL.into_iter().flat_map(|activation| shapes.map(|dims| (activation, dims)));
    cases.map(|(activation, dims)| Case::new(SwigluSoa { activation }, vec![rng.tensor(&dims)], 1e-5)).collect()
}
