//! Looks up rows of an embedding matrix that has several parts, because it exceeds one binding. From one part, it reads the rows of the
//! tokens that are in it.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::row;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::{BLOCK, Format};
use crate::tensor::soa::to_soa;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: tokens [tokens] u32, weight [rows, columns], x [tokens, columns] (changed).
#[derive(Clone)]
pub struct EmbeddingPart {
    /// The token of the part's first row.
    pub first_row: usize,
    /// As in `Embedding`.
    pub soa: bool,
}

impl Op for EmbeddingPart {
    on_cpu!();

    fn name(&self) -> &'static str {
        "embedding_part"
    }

    fn mutates(&self) -> &'static [usize] {
        &[2]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("embedding_part", inputs, &[Some(DType::U32), None, Some(DType::F32)])?;
        let (_, columns) = inputs[1].shape.matrix()?;
        let tokens = inputs[0].shape.elements();
        let can_be_soa = tokens == 1 && columns.is_multiple_of(BLOCK);
        if inputs[2].shape.dims() != [tokens, columns] || (self.soa && !can_be_soa) {
            bail!(
                ShapeMismatch,
                "embedding_part: {tokens} tokens, weight {}, x {}; wanted x [{tokens}, {columns}], and in SoA one token",
                inputs[1].shape,
                inputs[2].shape
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[2].shape.matrix()?;
        let blocks = columns.div_ceil(BLOCK);
        let rows = inputs[1].shape.dims()[0];
        let mut defines = vec![("PART", Define::Flag)];
        if columns % BLOCK != 0 {
            defines.push(("RAGGED", Define::Flag));
        }
        if self.soa {
            defines.push(("SOA", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("embedding.wgsl"),
            modules: &[],
            defines,
            params: vec![tokens as u32, columns as u32, blocks as u32, rows as u32, self.first_row as u32],
            grid: grid_2d((tokens * blocks).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for EmbeddingPart {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let tokens = inputs[0].to_u32()?;
        let (rows, columns) = inputs[1].shape.matrix()?;
        let (weight, mut x) = (inputs[1].to_f32()?, inputs[2].to_f32()?);
        for (token, x) in tokens.iter().zip(x.chunks_exact_mut(columns)) {
            let Some(row) = (*token as usize).checked_sub(self.first_row).filter(|row| *row < rows) else { continue };
            let row = &weight[row * columns..(row + 1) * columns];
            if self.soa { x.copy_from_slice(&to_soa(row)) } else { x.copy_from_slice(row) }
        }
        inputs[2] = HostTensor::f32(&[tokens.len(), columns], &x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [tokens, weight, x] = &mut tensors.inputs[..] else {
            bail!(Internal, "embedding_part without three inputs")
        };
        let (rows, columns) = weight.desc.shape.matrix()?;
        for (token, x) in tokens.u32s()?.iter().zip(x.f32s_mut()?.chunks_exact_mut(columns)) {
            let Some(at) = (*token as usize).checked_sub(self.first_row).filter(|row| *row < rows) else { continue };
            row(weight, at, x)?;
            if self.soa {
                x.copy_from_slice(&to_soa(x));
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(41);
    let mut cases = Vec::new();
    for (format, columns) in [("q8_0", 96), ("f16", 37), ("q4_0", 64)] {
        let Some(format) = Format::by_name(format) else { continue };
        let tokens = HostTensor::u32(&[6], &[99, 100, 163, 164, 0, 120]);
        let inputs = vec![tokens, rng.weight(format, 64, columns), rng.tensor(&[6, columns])];
        cases.push(Case::new(EmbeddingPart { first_row: 100, soa: false }, inputs, 0.0));
        for token in [110, 5] {
            if columns.is_multiple_of(BLOCK) {
                let inputs =
                    vec![HostTensor::u32(&[1], &[token]), rng.weight(format, 64, columns), rng.tensor(&[1, columns])];
                cases.push(Case::new(EmbeddingPart { first_row: 100, soa: true }, inputs, 0.0));
            }
        }
    }
    cases
}
