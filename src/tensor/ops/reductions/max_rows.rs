//! The largest elements of consecutive rows of a matrix, column by column: the vector of each text from those of its tokens.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns], spans [n, 2] u32: the range of each result, first row and end; at least one row, and none past the
/// last. Output: [n, columns].
#[derive(Clone)]
pub struct MaxRows;

impl Op for MaxRows {
    on_cpu!();

    fn name(&self) -> &'static str {
        "max_rows"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("max_rows", inputs, &[Some(DType::F32), Some(DType::U32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        let (n, two) = inputs[1].shape.matrix()?;
        if two != 2 {
            bail!(ShapeMismatch, "max_rows: spans {}, wanted [n, 2]", inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[n, columns])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let n = outputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("max_rows.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, columns as u32, rows as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MaxRows {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (x, spans) = (inputs[0].to_f32()?, inputs[1].to_u32()?);
        let mut out = Vec::new();
        for span in spans.chunks_exact(2) {
            let rows = span[0] as usize..span[1] as usize;
            let largest = |column: usize| rows.clone().map(|row| x[row * columns + column]).fold(f32::MIN, f32::max);
            out.extend((0..columns).map(largest));
        }
        Ok(vec![HostTensor::f32(&[spans.len() / 2, columns], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(43);
    let cases: [(usize, usize, &[u32]); 2] =
        [(9, 37, &[0, 3, 3, 4, 4, 9]), (530, 384, &[0, 512, 512, 530, 0, 1, 529, 530])];
    cases
        .iter()
        .map(|&(rows, columns, spans)| {
            let inputs = vec![rng.tensor(&[rows, columns]), HostTensor::u32(&[spans.len() / 2, 2], spans)];
            Case::new(MaxRows, inputs, 0.0)
        })
        .collect()
}
