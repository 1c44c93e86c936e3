//! Means of consecutive rows of a matrix: the vector of each text from those of its tokens.

use rillm_cpu_kernels::{add, scale};

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns], spans [n, 2] u32: the range of each mean, first row and end; at least one row, and none past the
/// last. Output: [n, columns].
#[derive(Clone)]
pub struct MeanRows;

impl Op for MeanRows {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mean_rows"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("mean_rows", inputs, &[Some(DType::F32), Some(DType::U32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        let (n, two) = inputs[1].shape.matrix()?;
        if two != 2 {
            bail!(ShapeMismatch, "mean_rows: spans {}, wanted [n, 2]", inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[n, columns])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let n = outputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("mean_rows.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, columns as u32, rows as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MeanRows {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (x, spans) = (inputs[0].to_f32()?, inputs[1].to_u32()?);
        let mut out = Vec::new();
        for span in spans.chunks_exact(2) {
            let (begin, end) = (span[0] as usize, span[1] as usize);
            for column in 0..columns {
                let sum: f64 = (begin..end).map(|row| f64::from(x[row * columns + column])).sum();
                out.push((sum / (end - begin) as f64) as f32);
            }
        }
        Ok(vec![HostTensor::f32(&[spans.len() / 2, columns], &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, spans] = &tensors.inputs[..] else { bail!(Internal, "mean_rows without two inputs") };
        let (_, columns) = x.desc.shape.matrix()?;
        let (x, spans) = (x.f32s()?, spans.u32s()?);
        for (span, out) in spans.chunks_exact(2).zip(tensors.outputs[0].f32s_mut()?.chunks_exact_mut(columns)) {
            let (begin, end) = (span[0] as usize, span[1] as usize);
            out.fill(0.0);
            x[begin * columns..end * columns].chunks_exact(columns).for_each(|row| add(out, row));
            scale(out, 1.0 / (end - begin) as f32);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(42);
    let cases: [(usize, usize, &[u32]); 3] =
        [(1, 1, &[0, 1]), (9, 37, &[0, 3, 3, 4, 4, 9]), (530, 384, &[0, 512, 512, 530, 0, 1, 529, 530])];
    cases
        .iter()
        .map(|&(rows, columns, spans)| {
            let inputs = vec![rng.tensor(&[rows, columns]), HostTensor::u32(&[spans.len() / 2, 2], spans)];
            Case::new(MeanRows, inputs, 2e-6)
        })
        .collect()
}
