//! Copies a matrix into columns of a wider one: the logits of a part of the vocabulary to their place among all.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns], all [rows, all columns] (changed: columns `first` to `first + columns`).
#[derive(Clone)]
pub struct PlaceColumns {
    /// The column of `all` that x's first column is written to.
    pub first: usize,
}

impl Op for PlaceColumns {
    on_cpu!();

    fn name(&self) -> &'static str {
        "place_columns"
    }

    fn mutates(&self) -> &'static [usize] {
        &[1]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("place_columns", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let ((rows, columns), (all_rows, all_columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        if rows != all_rows || self.first + columns > all_columns {
            bail!(
                ShapeMismatch,
                "place_columns: {} at column {} of {}, wanted the same rows, and columns inside of it",
                inputs[0].shape,
                self.first,
                inputs[1].shape
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((rows, columns), (_, all_columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        Ok(Kernel {
            template: crate::shader!("place_columns.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![(rows * columns) as u32, columns as u32, all_columns as u32, self.first as u32],
            grid: grid_2d((rows * columns).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for PlaceColumns {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((_, columns), (rows, all_columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let (x, mut all) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        for (x, all) in x.chunks_exact(columns).zip(all.chunks_exact_mut(all_columns)) {
            all[self.first..self.first + columns].copy_from_slice(x);
        }
        inputs[1] = HostTensor::f32(&[rows, all_columns], &all);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, all] = &mut tensors.inputs[..] else { bail!(Internal, "place_columns without two inputs") };
        let ((_, columns), (_, all_columns)) = (x.desc.shape.matrix()?, all.desc.shape.matrix()?);
        for (x, all) in x.f32s()?.chunks_exact(columns).zip(all.f32s_mut()?.chunks_exact_mut(all_columns)) {
            all[self.first..self.first + columns].copy_from_slice(x);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(42);
    [(1, 5, 9, 4), (3, 7, 7, 0), (2, 100, 263, 33)]
        .iter()
        .map(|&(rows, columns, all, first)| {
            Case::new(PlaceColumns { first }, vec![rng.tensor(&[rows, columns]), rng.tensor(&[rows, all])], 0.0)
        })
        .collect()
}
