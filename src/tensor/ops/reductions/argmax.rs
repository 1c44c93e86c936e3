//! The largest element of each row: the greedy tokens of several positions at once.

use rillm_cpu_kernels::extremes;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::on_cpu::by_reference;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [rows, columns]. Output: [rows] u32, the column of each row's largest element, the first among equals; u32::MAX for
/// a row that holds a NaN, or only -∞. The same choice as `sample_partial` and `sample_merge` with temperature 0.
#[derive(Clone)]
pub struct Argmax;

const WORKGROUP: u32 = 256;

impl Op for Argmax {
    on_cpu!();

    fn name(&self) -> &'static str {
        "argmax"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("argmax", inputs, &[Some(DType::F32)])?;
        let (rows, columns) = inputs[0].shape.matrix()?;
        if columns == 0 {
            bail!(ShapeMismatch, "argmax: the rows of {} have no elements", inputs[0].shape);
        }
        Ok(vec![Desc::u32(&[rows])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("argmax.wgsl"),
            modules: &[],
            defines: vec![("WORKGROUP", Define::U32(WORKGROUP))],
            params: vec![columns as u32],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for Argmax {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let x = inputs[0].to_f32()?;
        let best = x.chunks_exact(columns).map(|row| {
            if row.iter().any(|value| value.is_nan()) {
                return u32::MAX;
            }
            let best = (1..columns).fold(0, |best, column| if row[column] > row[best] { column } else { best });
            if row[best] <= f32::MIN { u32::MAX } else { best as u32 }
        });
        Ok(vec![HostTensor::u32(&[rows], &best.collect::<Vec<u32>>())])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let x = tensors.input(0)?;
        let (_, columns) = x.desc.shape.matrix()?;
        let best = |row: &[f32]| extremes(row).map(|[_, largest]| (row.iter().position(|x| *x == largest), largest));
        let found: Vec<_> = x.f32s()?.chunks_exact(columns).map(best).collect();
        // What is no number, or infinite, is seldom.
        if found.iter().any(Option::is_none) {
            return by_reference(self, tensors);
        }
        for (out, (column, largest)) in tensors.outputs[0].u32s_mut()?.iter_mut().zip(found.into_iter().flatten()) {
            *out = column.filter(|_| largest > f32::MIN).map_or(u32::MAX, |column| column as u32);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(63);
    let mut cases: Vec<Case> = [(1, 1), (2, 3), (3, 257), (8, 5003), (5, 151_937), (2, 262_208)]
        .into_iter()
        .map(|(rows, columns)| Case::new(Argmax, vec![rng.tensor(&[rows, columns])], 0.0))
        .collect();
    // Largest first, largest last, all equal, infinities, NaN in the first, some and the last column.
    let columns = 3001;
    let mut rows = Vec::new();
    for kind in 0..8 {
        let row = (0..columns).map(|column| match (kind, column) {
            (0, 0) | (1, 3000) => 2.0,
            (2, _) => 0.5,
            (3, _) => f32::NEG_INFINITY,
            (4, 1234) => f32::INFINITY,
            (5, 0) | (6, 777) | (7, 3000) => f32::NAN,
            _ => -1.0 - (column % 7) as f32,
        });
        rows.extend(row);
    }
    cases.push(Case::new(Argmax, vec![HostTensor::f32(&[8, columns], &rows)], 0.0));
    cases
}
