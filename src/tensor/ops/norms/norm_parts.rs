//! RMS norms of neighbouring parts of rows, in place, each part by itself: of step, B and C of a Mamba mixer (Lieber et al. 2024, "Jamba").

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns] (changed: three parts side by side, then columns that stay as they are), weights [the parts' columns].
#[derive(Clone, Copy, Debug)]
pub struct NormParts {
    /// Columns of each part.
    pub lengths: [usize; 3],
    /// ε in the formula.
    pub epsilon: f32,
}

impl Op for NormParts {
    on_cpu!();

    fn name(&self) -> &'static str {
        "norm_parts"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("norm_parts", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        let normed: usize = self.lengths.iter().sum();
        if self.lengths.contains(&0) || normed > columns || inputs[1].shape.elements() != normed {
            let [x, weights] = [0, 1].map(|input| inputs[input].shape);
            bail!(ShapeMismatch, "norm_parts: x {x}, weights {weights}, parts of {:?}", self.lengths);
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        let [first, second, third] = self.lengths;
        let numbers = [3 * rows, columns, first, second, third];
        Ok(Kernel {
            template: crate::shader!("norm_parts.wgsl"),
            modules: &[],
            // A workgroup is one team: its rows are loops of one length, so lanes stay together.
            defines: lanes_defines(lanes.unwrap_or(32), lanes),
            params: numbers.map(|number| number as u32).into_iter().chain([self.epsilon.to_bits()]).collect(),
            grid: grid_2d(3 * rows, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for NormParts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let weights = inputs[1].to_f32()?;
        let mut x = inputs[0].to_f32()?;
        for row in x.chunks_exact_mut(columns) {
            let mut first = 0;
            for length in self.lengths {
                let part = &mut row[first..first + length];
                let mean = part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / length as f64;
                let scale = 1.0 / (mean + f64::from(self.epsilon)).sqrt();
                for (x, weight) in part.iter_mut().zip(&weights[first..]) {
                    *x = (f64::from(*x) * scale * f64::from(*weight)) as f32;
                }
                first += length;
            }
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(146);
    // rows, parts, columns that stay
    [(1, [1, 1, 1], 0), (1, [256, 16, 16], 0), (5, [7, 31, 64], 3), (67, [160, 16, 16], 1), (2, [3, 2049, 1], 0)]
        .map(|(rows, lengths, rest)| {
            let normed: usize = lengths.iter().sum();
            let inputs = vec![rng.tensor(&[rows, normed + rest]), rng.tensor(&[normed])];
            Case::new(NormParts { lengths, epsilon: 1e-6 }, inputs, 1e-5)
        })
        .into()
}
