//! Brings each token's activations into planes (`tensor/planar.rs`), the order in which the lanes of a mat-vec read side by side.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::planar::to_planar;
use crate::tensor::quant::BLOCK;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Input: x [tokens, columns], columns a multiple of 32. Output: the same, each row in planes.
pub struct ToPlanes;

impl Op for ToPlanes {
    fn name(&self) -> &'static str {
        "planes"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("planes", inputs, &[Some(DType::F32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        if !columns.is_multiple_of(BLOCK) {
            bail!(ShapeMismatch, "planes: rows of {} are no multiple of {BLOCK} long", inputs[0].shape);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let words = tokens * columns / 4;
        Ok(Kernel {
            template: include_str!("planes.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![words as u32, (columns / BLOCK) as u32],
            grid: grid_2d(words.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        Ok(vec![to_planes(&inputs[0])?])
    }
}

/// Each row in planes.
pub(super) fn to_planes(x: &HostTensor) -> Result<HostTensor> {
    let (_, columns) = x.shape.matrix()?;
    let planes: Vec<f32> = x.to_f32()?.chunks_exact(columns).flat_map(to_planar).collect();
    Ok(HostTensor::f32(x.shape.dims(), &planes))
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(62);
    [(1, 32), (2, 96), (5, 992), (8, 4864)]
        .map(|(tokens, columns)| Case::new(ToPlanes, vec![rng.tensor(&[tokens, columns])], 0.0))
        .into()
}
