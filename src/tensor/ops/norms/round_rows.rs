//! Rounds each row to 255 steps, as BitNet rounds the inputs of its products (Wang et al. 2023, "BitNet: Scaling 1-bit Transformers for Large
//! Language Models").

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [rows, columns]. Output: the same, where each number is a multiple of the row's largest magnitude / 127.
#[derive(Clone, Copy, Debug)]
pub struct RoundRows;

/// The least largest magnitude.
const LEAST: f32 = 1e-5;

impl Op for RoundRows {
    on_cpu!();

    fn name(&self) -> &'static str {
        "round_rows"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("round_rows", inputs, &[Some(DType::F32)])?;
        inputs[0].shape.matrix()?;
        fits_u32("round_rows", inputs[0].shape.dims())?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("round_rows.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![rows as u32, columns as u32, LEAST.to_bits()],
            grid: grid_2d(rows, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RoundRows {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let mut x = inputs[0].to_f32()?;
        for row in x.chunks_exact_mut(columns) {
            let steps = 127.0 / row.iter().fold(LEAST, |most, x| most.max(x.abs()));
            row.iter_mut().for_each(|x| *x = (*x * steps).round_ties_even().clamp(-128.0, 127.0) / steps);
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &x)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(614);
    let shapes = [(1, 1), (3, 37), (5, 64), (2, 2560), (70, 96)];
    let mut cases: Vec<Case> =
        shapes.iter().map(|(rows, columns)| Case::new(RoundRows, vec![rng.tensor(&[*rows, *columns])], 1e-6)).collect();
    // Zeros, and halves of a step, which go to the even neighbour.
    let mut halves = vec![0.0; 130];
    halves[65..].iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 - 32.0) / 2.0);
    halves[65] = -127.0;
    cases.push(Case::new(RoundRows, vec![HostTensor::f32(&[2, 65], &halves)], 1e-6));
    cases
}
