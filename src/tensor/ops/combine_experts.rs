//! The weighted sum of what each token's experts gave.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: y [tokens · used, columns], weights [tokens, used]. Output: [tokens, columns].
pub struct CombineExperts;

impl Op for CombineExperts {
    fn name(&self) -> &'static str {
        "combine_experts"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("combine_experts", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let (items, columns) = inputs[0].shape.matrix()?;
        let (tokens, used) = inputs[1].shape.matrix()?;
        if items != tokens * used {
            bail!(ShapeMismatch, "combine_experts: y {} and weights {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[tokens, columns])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = outputs[0].shape.matrix()?;
        let (_, used) = inputs[1].shape.matrix()?;
        let n = outputs[0].shape.elements();
        Ok(Kernel {
            template: include_str!("combine_experts.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, columns as u32, used as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (tokens, used) = inputs[1].shape.matrix()?;
        let (y, weights) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let mut out = Vec::with_capacity(tokens * columns);
        for token in 0..tokens {
            for column in 0..columns {
                let items = token * used..(token + 1) * used;
                let sum: f64 = items.map(|item| f64::from(weights[item]) * f64::from(y[item * columns + column])).sum();
                out.push(sum as f32);
            }
        }
        Ok(vec![HostTensor::f32(&[tokens, columns], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(77);
    [(1, 1, 1), (3, 2, 37), (1, 8, 2048), (67, 4, 96)]
        .map(|(tokens, used, columns)| {
            let inputs = vec![rng.tensor(&[tokens * used, columns]), rng.tensor(&[tokens, used])];
            Case::new(CombineExperts, inputs, 1e-5)
        })
        .into()
}
