//! Queries scaled by their position, in place: `1 + β · ln(1 + ⌊position / original⌋)`, so that attention stays sharp far beyond the
//! context of training (Llama 4; Ministral 3).

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns] (changed), state [4] u32 (state[0] is the position of the first token).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleByPosition {
    /// β in the formula.
    pub beta: f32,
    /// The length of a range of positions that share a factor; 1 or more.
    pub original: usize,
}

impl Op for ScaleByPosition {
    on_cpu!();

    fn name(&self) -> &'static str {
        "scale_by_position"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("scale_by_position", inputs, &[Some(DType::F32), Some(DType::U32)])?;
        inputs[0].shape.matrix()?;
        if self.original == 0 {
            bail!(ShapeMismatch, "scale_by_position: ranges of 0 positions, wanted 1 or more");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("scale_by_position.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, columns as u32, self.beta.to_bits(), self.original as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for ScaleByPosition {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let first = inputs[1].to_u32()?[0] as usize;
        let mut x = inputs[0].to_f32()?;
        for (token, row) in x.chunks_exact_mut(columns).enumerate() {
            let range = ((first + token) / self.original) as f64;
            let factor = 1.0 + f64::from(self.beta) * range.ln_1p();
            row.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(83);
    // tokens, columns, position, original
    [(1, 1, 0, 1), (1, 64, 8191, 8192), (5, 33, 8190, 8192), (37, 16, 100_000, 16)]
        .iter()
        .map(|&(tokens, columns, position, original)| {
            let inputs = vec![rng.tensor(&[tokens, columns]), HostTensor::u32(&[4], &[position, 0, 0, 0])];
            Case::new(ScaleByPosition { beta: 0.1, original }, inputs, 1e-6)
        })
        .collect()
}
