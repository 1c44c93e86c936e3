//! Scales each row to the root mean square of another one (Gemma 3n's streams).

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x and like [rows, columns]. Output: x · √(mean like²) / √(max(mean x², least)).
#[derive(Clone, Copy, Debug)]
pub struct MatchMagnitude {
    /// The least mean square that x counts as having.
    pub least: f32,
}

impl Op for MatchMagnitude {
    on_cpu!();

    fn name(&self) -> &'static str {
        "match_magnitude"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("match_magnitude", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        inputs[0].shape.matrix()?;
        if inputs[0].shape != inputs[1].shape {
            bail!(ShapeMismatch, "match_magnitude: {} and {} differ in shape", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        Ok(Kernel {
            template: crate::shader!("match_magnitude.wgsl"),
            modules: &[],
            // A workgroup is one team: its rows are loops of one length, so lanes stay together.
            defines: lanes_defines(lanes.unwrap_or(64), lanes),
            params: vec![rows as u32, columns as u32, self.least.to_bits()],
            grid: grid_2d(rows, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MatchMagnitude {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (x, like) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let mean = |row: &[f32]| row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / columns as f64;
        let mut out = Vec::with_capacity(x.len());
        for (x, like) in x.chunks_exact(columns).zip(like.chunks_exact(columns)) {
            let factor = mean(like).sqrt() / mean(x).max(f64::from(self.least)).sqrt();
            out.extend(x.iter().map(|x| (f64::from(*x) * factor) as f32));
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(90);
    let mut cases: Vec<Case> = [(1, 1), (1, 2048), (3, 97), (70, 32)]
        .iter()
        .map(|&(rows, columns)| {
            let inputs = vec![rng.tensor(&[rows, columns]), rng.tensor(&[rows, columns])];
            Case::new(MatchMagnitude { least: 1e-5 }, inputs, 1e-5)
        })
        .collect();
    // A row below the least, and one of zeros.
    let x = HostTensor::f32(&[2, 4], &[1e-4, -1e-4, 2e-4, 0.0, 0.0, 0.0, 0.0, 0.0]);
    cases.push(Case::new(MatchMagnitude { least: 1e-5 }, vec![x, rng.tensor(&[2, 4])], 1e-5));
    cases
}
