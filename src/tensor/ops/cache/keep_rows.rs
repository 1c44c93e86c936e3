//! Keeps the last rows of a sequence, such as hidden states, in a ring: that of position p is row p modulo the length of the ring.

use super::placement::Placement;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::from_soa;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns], position [4] u32 (the position of the first token, a step, whether the sequence has stopped, the number of the
/// sequence) or [tokens, 4] for tokens of different sequences, and the rings (changed), [length · columns] or [sequences, length · columns].
/// That of a sequence that has stopped stays the same.
#[derive(Clone, Copy, Debug)]
pub struct KeepRows {
    /// Rows of x are in SoA (`tensor/soa.rs`), and those of the ring are not.
    pub soa: bool,
}

impl KeepRows {
    /// The rows that a ring of this many numbers has.
    fn rows(self, inputs: &[Desc]) -> Result<(usize, usize)> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let len = Placement::of("keep_rows", inputs[1], tokens)?.state_len("keep_rows", inputs[2])?;
        if columns == 0 || len == 0 || !len.is_multiple_of(columns) || (self.soa && !columns.is_multiple_of(BLOCK)) {
            bail!(ShapeMismatch, "keep_rows: x {}, rings {}; {self:?}", inputs[0].shape, inputs[2].shape);
        }
        Ok((len / columns, len))
    }
}

impl Op for KeepRows {
    on_cpu!();

    fn name(&self) -> &'static str {
        "keep_rows"
    }

    fn mutates(&self) -> &'static [usize] {
        &[2]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("keep_rows", inputs, &[f32, Some(DType::U32), f32])?;
        self.rows(inputs).map(|_| vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("keep_rows", inputs[1], tokens)?;
        let (rows, len) = self.rows(inputs)?;
        // Of more tokens than rows the last ones stay.
        let kept = if placement == Placement::Consecutive { tokens.min(rows) } else { tokens };
        let mut defines = placement.defines();
        defines.extend(self.soa.then_some(("SOA", Define::Flag)));
        let numbers = [kept * columns, tokens - kept, columns, rows, len];
        Ok(Kernel {
            template: crate::shader!("keep_rows.wgsl"),
            modules: &[],
            defines,
            params: numbers.map(|number| number as u32).to_vec(),
            grid: grid_2d((kept * columns).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for KeepRows {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let placement = Placement::of("keep_rows", inputs[1].desc(), tokens)?;
        let descs: Vec<Desc> = inputs.iter().map(HostTensor::desc).collect();
        let (rows, _) = self.rows(&descs)?;
        let (x, position, mut rings) = (inputs[0].to_f32()?, inputs[1].to_u32()?, inputs[2].to_f32()?);
        for (token, row) in x.chunks_exact(columns).enumerate() {
            if placement.has_stopped(&position, token) {
                continue;
            }
            let row = if self.soa { from_soa(row) } else { row.to_vec() };
            let at = placement.first_row(&position, token, rows) + placement.position(&position, token) % rows;
            rings[at * columns..(at + 1) * columns].copy_from_slice(&row);
        }
        inputs[2].set_f32(&rings);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let descs: Vec<Desc> = tensors.inputs.iter().map(|input| input.desc).collect();
        let (rows, _) = self.rows(&descs)?;
        let [x, position, rings] = &mut tensors.inputs[..] else { bail!(Internal, "keep_rows without three inputs") };
        let (tokens, columns) = x.desc.shape.matrix()?;
        let placement = Placement::of("keep_rows", position.desc, tokens)?;
        let (position, rings) = (position.u32s()?, rings.f32s_mut()?);
        for (token, row) in x.f32s()?.chunks_exact(columns).enumerate() {
            if placement.has_stopped(position, token) {
                continue;
            }
            let at = placement.first_row(position, token, rows) + placement.position(position, token) % rows;
            let kept = &mut rings[at * columns..(at + 1) * columns];
            if self.soa {
                kept.copy_from_slice(&from_soa(row));
            } else {
                kept.copy_from_slice(row);
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(171);
    let mut cases = Vec::new();
    // tokens, columns, rows of the ring, position, stopped, soa
    for (tokens, columns, rows, position, stopped, soa) in [
        (1, 1, 1, 0, 0, false),
        (1, 96, 16, 35, 0, true),
        (3, 37, 16, 15, 0, false),
        (16, 64, 16, 9, 0, false),
        (131, 33, 16, 7, 0, false),
        (5, 32, 2, 1, 0, true),
        (2, 64, 16, 4, 1, false),
    ] {
        let position = HostTensor::u32(&[4], &[position, 3, stopped, 0]);
        let inputs = vec![rng.tensor(&[tokens, columns]), position, rng.tensor(&[rows * columns])];
        cases.push(Case::new(KeepRows { soa }, inputs, 0.0));
    }
    // Three sequences in another order than the rings: one begins, and one has stopped.
    let position = HostTensor::u32(&[3, 4], &[33, 9, 0, 2, 0, 0, 0, 0, 6, 4, 1, 1]);
    let inputs = vec![rng.tensor(&[3, 64]), position, rng.tensor(&[4, 16 * 64])];
    cases.push(Case::new(KeepRows { soa: false }, inputs, 0.0));
    cases
}
