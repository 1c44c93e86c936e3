//! SwiGLU (Shazeer 2020, "GLU Variants Improve Transformer") of one tensor that holds gate and up side by side: the output of
//! the product with both matrices joined.

use rillm_cpu_kernels::gate;

use super::swiglu::swiglu_reference;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Activation;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: gate_up [tokens, 2 · columns], each token's gate first. Output: [tokens, columns].
#[derive(Clone, Default)]
pub struct SwigluFused {
    /// The function that the gate goes through.
    pub activation: Activation,
}

impl Op for SwigluFused {
    on_cpu!();

    fn name(&self) -> &'static str {
        "swiglu_fused"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let [tokens, columns] = halves("swiglu_fused", inputs)?;
        Ok(vec![Desc::f32(&[tokens, columns])])
    }

    fn kernel(&self, _: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = outputs[0].shape.matrix()?;
        let mut defines = self.activation.defines();
        let width = if columns.is_multiple_of(4) { 4 } else { 1 };
        if width == 4 {
            defines.push(("FOUR", Define::Flag));
        }
        let numbers = outputs[0].shape.elements() / width;
        Ok(Kernel {
            template: crate::shader!("swiglu_fused.wgsl"),
            modules: &[],
            defines,
            params: vec![numbers as u32, (columns / width) as u32],
            grid: grid_2d(numbers.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SwigluFused {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [tokens, columns] = halves("swiglu_fused", &[inputs[0].desc()])?;
        Ok(vec![HostTensor::f32(&[tokens, columns], &swiglu_of_halves(self.activation, &inputs[0].to_f32()?, columns))])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [_, columns] = halves(self.name(), &[tensors.inputs[0].desc])?;
        gate_halves(self.activation, tensors.inputs[0].f32s()?, columns, tensors.outputs[0].f32s_mut()?);
        Ok(())
    }
}

/// Gates the second half of each row of [tokens, 2 · columns] by the first, written to `out` [tokens, columns].
pub(in crate::tensor::ops) fn gate_halves(activation: Activation, gate_up: &[f32], columns: usize, out: &mut [f32]) {
    for (row, out) in gate_up.chunks_exact(2 * columns).zip(out.chunks_exact_mut(columns)) {
        gate(activation.on_cpu(), &row[..columns], &row[columns..], out);
    }
}

/// Tokens and columns of the product of [tokens, 2 · columns].
pub(super) fn halves(op: &str, inputs: &[Desc]) -> Result<[usize; 2]> {
    expect(op, inputs, &[Some(DType::F32)])?;
    let (tokens, both) = inputs[0].shape.matrix()?;
    if !both.is_multiple_of(2) {
        bail!(ShapeMismatch, "{op}: {} has no two halves", inputs[0].shape);
    }
    Ok([tokens, both / 2])
}

pub(super) fn swiglu_of_halves(activation: Activation, gate_up: &[f32], columns: usize) -> Vec<f32> {
    let rows = gate_up.chunks_exact(2 * columns).map(|row| row.split_at(columns));
    rows.flat_map(|(gate, up)| gate.iter().zip(up).map(|(gate, up)| swiglu_reference(activation, *gate, *up))).collect()
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(25);
    let shapes = [[1, 2], [3, 2 * 97], [19, 2 * 512], [101, 2 * 1409]];
    let cases = Activation::ALL.into_iter().flat_map(|activation| shapes.map(|dims| (activation, dims)));
    cases.map(|(activation, dims)| Case::new(SwigluFused { activation }, vec![rng.tensor(&dims)], 1e-5)).collect()
}
