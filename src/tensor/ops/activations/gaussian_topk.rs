//! Keeps of each row what lies above a number of standard deviations from its mean, less that: as if rows were normally distributed, these are
//! its largest values (activation sparsity; Gemma 3n).

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [rows, columns]. Output: max(x − (mean + deviations · standard deviation), 0), with both of the row.
#[derive(Clone, Copy, Debug)]
pub struct GaussianTopk {
    /// The number of standard deviations.
    pub deviations: f32,
}

impl Op for GaussianTopk {
    on_cpu!();

    fn name(&self) -> &'static str {
        "gaussian_topk"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("gaussian_topk", inputs, &[Some(DType::F32)])?;
        inputs[0].shape.matrix()?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        Ok(Kernel {
            template: crate::shader!("gaussian_topk.wgsl"),
            modules: &[],
            // A workgroup is one team: its rows are loops of one length, so lanes stay together.
            defines: lanes_defines(lanes.unwrap_or(64), lanes),
            params: vec![rows as u32, columns as u32, self.deviations.to_bits()],
            grid: grid_2d(rows, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for GaussianTopk {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let x = inputs[0].to_f32()?;
        let mut out = Vec::with_capacity(x.len());
        for row in x.chunks_exact(columns) {
            let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / columns as f64;
            let variance = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / columns as f64;
            let cutoff = mean + f64::from(self.deviations) * variance.sqrt();
            out.extend(row.iter().map(|x| (f64::from(*x) - cutoff).max(0.0) as f32));
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(91);
    let mut cases: Vec<Case> = [(1, 2, 0.5), (1, 16384, 1.6448536), (3, 97, 0.0), (70, 64, -0.7)]
        .iter()
        .map(|&(rows, columns, deviations)| {
            Case::new(GaussianTopk { deviations }, vec![rng.tensor(&[rows, columns])], 1e-5)
        })
        .collect();
    // A mean that is far from zero, where the mean of squares less the square of the mean would have no digits left.
    let far: Vec<f32> = rng.tensor(&[2, 256]).to_f32().unwrap_or_default().iter().map(|x| x + 300.0).collect();
    cases.push(Case::new(GaussianTopk { deviations: 0.5 }, vec![HostTensor::f32(&[2, 256], &far)], 1e-3));
    cases
}
