//! The row of the position before a sequence's next one, from a ring that `keep_rows` writes, and the state of a pass at that position.

use super::placement::Placement;
use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: rings [length · columns] or [sequences, length · columns], and position [4] u32 (a position, a step, whether the sequence has
/// stopped, the number of the sequence) or [tokens, 4] for different sequences. Outputs: the rows [tokens, columns], zeros at position 0, and
/// the same words for the position before; at position 0, before which there is none, as of a sequence that has stopped.
#[derive(Clone, Copy, Debug)]
pub struct RecallRow {
    /// The length of a row.
    pub columns: usize,
}

impl RecallRow {
    /// Positions, rows of a ring, and its numbers.
    fn sizes(self, inputs: &[Desc]) -> Result<(usize, usize, usize)> {
        let tokens = inputs[1].shape.elements() / 4;
        let len = Placement::of("recall_row", inputs[1], tokens)?.state_len("recall_row", inputs[0])?;
        if self.columns == 0 || len == 0 || !len.is_multiple_of(self.columns) {
            bail!(ShapeMismatch, "recall_row: rings {}, {self:?}", inputs[0].shape);
        }
        Ok((tokens, len / self.columns, len))
    }
}

impl Op for RecallRow {
    on_cpu!();

    fn name(&self) -> &'static str {
        "recall_row"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("recall_row", inputs, &[Some(DType::F32), Some(DType::U32)])?;
        let (tokens, ..) = self.sizes(inputs)?;
        Ok(vec![Desc::f32(&[tokens, self.columns]), inputs[1]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, rows, len) = self.sizes(inputs)?;
        let elements = tokens * self.columns;
        Ok(Kernel {
            template: crate::shader!("recall_row.wgsl"),
            modules: &[],
            defines: Placement::of("recall_row", inputs[1], tokens)?.defines(),
            params: [elements, self.columns, rows, len].map(|number| number as u32).to_vec(),
            grid: grid_2d(elements.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RecallRow {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let descs: Vec<Desc> = inputs.iter().map(HostTensor::desc).collect();
        let (tokens, rows, _) = self.sizes(&descs)?;
        let placement = Placement::of("recall_row", descs[1], tokens)?;
        let (rings, position) = (inputs[0].to_f32()?, inputs[1].to_u32()?);
        let (mut out, mut before) = (Vec::new(), position.clone());
        for token in 0..tokens {
            let at = placement.position(&position, token);
            let word = |word: usize| token * 4 + word;
            if at == 0 {
                out.extend(vec![0.0; self.columns]);
                before[word(2)] = 1;
            } else {
                let row = placement.first_row(&position, token, rows) + (at - 1) % rows;
                out.extend_from_slice(&rings[row * self.columns..(row + 1) * self.columns]);
                before[word(0)] -= 1;
            }
        }
        Ok(vec![HostTensor::f32(&[tokens, self.columns], &out), HostTensor::u32(descs[1].shape.dims(), &before)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let descs: Vec<Desc> = tensors.inputs.iter().map(|input| input.desc).collect();
        let (tokens, rows, _) = self.sizes(&descs)?;
        let placement = Placement::of("recall_row", descs[1], tokens)?;
        let (rings, position) = (tensors.inputs[0].f32s()?, tensors.inputs[1].u32s()?);
        let [out, before] = &mut tensors.outputs[..] else { bail!(Internal, "recall_row without two outputs") };
        let (out, before) = (out.f32s_mut()?, before.u32s_mut()?);
        before.copy_from_slice(position);
        for (token, out) in out.chunks_exact_mut(self.columns).enumerate() {
            let words = &mut before[token * 4..];
            if let Some(last) = placement.position(position, token).checked_sub(1) {
                let row = placement.first_row(position, token, rows) + last % rows;
                out.copy_from_slice(&rings[row * self.columns..(row + 1) * self.columns]);
                words[0] -= 1;
            } else {
                out.fill(0.0);
                words[2] = 1;
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(172);
    let mut cases = Vec::new();
    // columns, rows of the ring, position, stopped
    for (columns, rows, position, stopped) in [(1, 1, 0, 0), (67, 16, 1, 0), (64, 16, 35, 0), (2050, 16, 16, 1)] {
        let inputs = vec![rng.tensor(&[rows * columns]), HostTensor::u32(&[4], &[position, 3, stopped, 0])];
        cases.push(Case::new(RecallRow { columns }, inputs, 0.0));
    }
    let position = HostTensor::u32(&[3, 4], &[33, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1]);
    cases.push(Case::new(RecallRow { columns: 64 }, vec![rng.tensor(&[4, 16 * 64]), position], 0.0));
    cases
}
