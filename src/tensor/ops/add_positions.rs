//! Adds learned positions (Gehring et al. 2017) to the embeddings of tokens, in place.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::quant::{BLOCK, FORMATS};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: x [tokens, columns] (changed), positions [context, columns], state [4] u32 (state[0] is the position of the first
/// token). Past the context the last position is added; the caller checks that there is room.
pub struct AddPositions;

impl Op for AddPositions {
    fn name(&self) -> &'static str {
        "add_positions"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("add_positions", inputs, &[Some(DType::F32), None, Some(DType::U32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        if inputs[1].shape.matrix()?.1 != columns {
            bail!(ShapeMismatch, "add_positions: x {} and positions {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (context, _) = inputs[1].shape.matrix()?;
        let blocks = columns.div_ceil(BLOCK);
        let ragged = (!columns.is_multiple_of(BLOCK)).then_some(("RAGGED", Define::Flag));
        Ok(Kernel {
            template: include_str!("add_positions.wgsl"),
            modules: &[],
            defines: ragged.into_iter().collect(),
            params: vec![tokens as u32, columns as u32, blocks as u32, context as u32],
            grid: grid_2d((tokens * blocks).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (context, _) = inputs[1].shape.matrix()?;
        let mut x = inputs[0].to_f32()?;
        let positions = inputs[1].to_f32()?;
        let first = inputs[2].to_u32()?[0] as usize;
        for (token, row) in x.chunks_exact_mut(columns).enumerate() {
            let position = (first + token).min(context - 1);
            row.iter_mut().zip(&positions[position * columns..]).for_each(|(x, p)| *x += p);
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(74);
    let mut cases = Vec::new();
    for format in FORMATS {
        let ragged: &[usize] = if format.block_size == 1 { &[1, 37, 100] } else { &[] };
        for columns in [32, 96, 1024].iter().chain(ragged).filter(|columns| columns.is_multiple_of(format.block_size)) {
            let state = HostTensor::u32(&[4], &[61, 0, 0, 0]);
            let inputs = vec![rng.tensor(&[13, *columns]), rng.weight(format, 73, *columns), state];
            cases.push(Case::new(AddPositions, inputs, 1e-6));
        }
    }
    cases
}
