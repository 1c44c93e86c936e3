//! Adds learned positions (Gehring et al. 2017) to the embeddings of tokens, in place.

use rillm_cpu_kernels::add;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::row;
use crate::tensor::cpu::zeros;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::soa::{to_soa, write_row};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns] (changed), positions [rows here, columns], state [4] u32 (state[0] is the position of the first
/// token) or [tokens, 4], one for each token's sequence. Past the end, the last position is added; the caller checks that there is room.
#[derive(Clone)]
pub struct AddPositions {
    /// The position of the tensor's first row, if the matrix has several parts. Only tokens whose position is in this part are
    /// changed.
    pub first_row: usize,
    /// Rows of the whole matrix.
    pub rows: usize,
    /// x is in SoA, each row (`tensor/soa.rs`).
    pub soa: bool,
}

impl Op for AddPositions {
    on_cpu!();

    fn name(&self) -> &'static str {
        "add_positions"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("add_positions", inputs, &[Some(DType::F32), None, Some(DType::U32)])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (rows_here, position_columns) = inputs[1].shape.matrix()?;
        let fits = position_columns == columns
            && self.first_row + rows_here <= self.rows
            && (!self.soa || columns.is_multiple_of(BLOCK));
        if !fits {
            bail!(
                ShapeMismatch,
                "add_positions: x {} and positions {} from {} on of {}",
                inputs[0].shape,
                inputs[1].shape,
                self.first_row,
                self.rows
            );
        }
        Placement::of("add_positions", inputs[2], tokens)?;
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (rows_here, _) = inputs[1].shape.matrix()?;
        let blocks = columns.div_ceil(BLOCK);
        let mut defines = Placement::of("add_positions", inputs[2], tokens)?.defines();
        defines.extend((!columns.is_multiple_of(BLOCK)).then_some(("RAGGED", Define::Flag)));
        defines.extend(self.soa.then_some(("SOA", Define::Flag)));
        let numbers = [tokens, columns, blocks, self.rows, self.first_row, rows_here];
        Ok(Kernel {
            template: crate::shader!("add_positions.wgsl"),
            modules: &[],
            defines,
            // The last is the capacity, which `placement.wgsl` needs and this kernel does not use.
            params: numbers.map(|number| number as u32).into_iter().chain([u32::MAX]).collect(),
            grid: grid_2d((tokens * blocks).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AddPositions {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (rows_here, _) = inputs[1].shape.matrix()?;
        let placement = Placement::of("add_positions", inputs[2].desc(), tokens)?;
        let mut x = inputs[0].to_f32()?;
        let positions = inputs[1].to_f32()?;
        let state = inputs[2].to_u32()?;
        for (token, row) in x.chunks_exact_mut(columns).enumerate() {
            let position = placement.position(&state, token).min(self.rows - 1);
            let Some(here) = position.checked_sub(self.first_row).filter(|here| *here < rows_here) else { continue };
            let added = &positions[here * columns..][..columns];
            let added = if self.soa { to_soa(added) } else { added.to_vec() };
            row.iter_mut().zip(added).for_each(|(x, p)| *x += p);
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, positions, state] = &mut tensors.inputs[..] else {
            bail!(Internal, "add_positions without three inputs")
        };
        let (tokens, columns) = x.desc.shape.matrix()?;
        let placement = Placement::of("add_positions", state.desc, tokens)?;
        let ((rows_here, _), state) = (positions.desc.shape.matrix()?, state.u32s()?);
        let (mut in_order, mut added) = (zeros(columns)?, zeros(columns)?);
        for (token, x) in x.f32s_mut()?.chunks_exact_mut(columns).enumerate() {
            let position = placement.position(state, token).min(self.rows - 1);
            let Some(here) = position.checked_sub(self.first_row).filter(|here| *here < rows_here) else { continue };
            row(positions, here, &mut in_order)?;
            write_row(&in_order, self.soa, &mut added);
            add(x, &added);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(74);
    let mut cases = Vec::new();
    for format in in_cases() {
        let ragged: &[usize] = if format.block_size == 1 { &[1, 37, 100] } else { &[] };
        for columns in [32, 96, 1024].iter().chain(ragged).filter(|columns| columns.is_multiple_of(format.block_size)) {
            let soa = columns.is_multiple_of(BLOCK) && cases.len() % 2 == 1;
            let state = match cases.len() % 3 {
                2 => HostTensor::u32(&[13, 4], &(0..52).map(|word| word * 7 % 90).collect::<Vec<_>>()),
                _ => HostTensor::u32(&[4], &[61, 0, 0, 0]),
            };
            // A part in the middle, or all.
            let (first_row, rows) = if cases.len() % 5 == 3 { (64, 200) } else { (0, 73) };
            let inputs = vec![rng.tensor(&[13, *columns]), rng.weight(format, 73, *columns), state];
            cases.push(Case::new(AddPositions { first_row, rows, soa }, inputs, 1e-6));
        }
    }
    cases
}
