//! Matrix-vector product of one token's activations with a weight in any format.
//!
//! Reading the weight once takes most of the time. So neighbouring lanes read neighbouring blocks of a row, each loaded activation
//! serves several rows, and sums are over the lanes of a subgroup, without workgroup memory if there are subgroups.

use super::epilogue::Epilogue;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::{BLOCK, FORMATS, Format, in_cases};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [1, columns], weight [rows, columns]. Output: [1, rows].
#[derive(Clone)]
pub struct MatVec;

/// Rows that a team of lanes computes at once.
const ROWS: usize = 4;
const WORKGROUP: u32 = 64;

impl Op for MatVec {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_vec"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let output = infer_linear("mat_vec", inputs)?;
        if inputs[0].shape.dims()[0] != 1 {
            bail!(ShapeMismatch, "mat_vec takes one row of activations, not {}", inputs[0].shape);
        }
        Ok(vec![output])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[1].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        let teams = WORKGROUP / lanes.unwrap_or(WORKGROUP);
        let mut defines = lanes_defines(WORKGROUP, lanes);
        defines.extend(ragged(columns));
        Ok(Kernel {
            template: crate::shader!("mat_vec.wgsl"),
            modules: &[],
            defines,
            params: vec![rows as u32, columns as u32, columns.div_ceil(BLOCK) as u32],
            grid: grid_2d(rows.div_ceil(ROWS * teams as usize), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MatVec {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, _) = inputs[1].shape.matrix()?;
        let product: Vec<f32> = reference_linear(inputs)?.iter().map(|value| *value as f32).collect();
        Ok(vec![HostTensor::f32(&[1, rows], &product)])
    }

    fn run_on_cpu(&self, tensors: CpuTensors<'_>) -> Result<()> {
        Epilogue::NONE.multiply_on_cpu(tensors)
    }
}

/// The output of activations [tokens, columns] × weight [rows, columns]: [tokens, rows].
pub(super) fn infer_linear(op: &str, inputs: &[Desc]) -> Result<Desc> {
    expect(op, inputs, &[Some(DType::F32), None])?;
    let (tokens, columns) = inputs[0].shape.matrix()?;
    let (rows, weight_columns) = inputs[1].shape.matrix()?;
    if columns != weight_columns {
        bail!(ShapeMismatch, "{op}: activations {} and weight {}", inputs[0].shape, inputs[1].shape);
    }
    Ok(Desc::f32(&[tokens, rows]))
}

pub(in crate::tensor::ops) fn ragged(columns: usize) -> Option<(&'static str, Define)> {
    (!columns.is_multiple_of(BLOCK)).then_some(("RAGGED", Define::Flag))
}

/// Activations × weight in f64: [tokens, rows].
pub(in crate::tensor::ops) fn reference_linear(inputs: &[HostTensor]) -> Result<Vec<f64>> {
    let (tokens, columns) = inputs[0].shape.matrix()?;
    let (rows, _) = inputs[1].shape.matrix()?;
    let (x, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
    let mut out = Vec::with_capacity(tokens * rows);
    for x in x.chunks_exact(columns) {
        for weight in weight.chunks_exact(columns) {
            out.push(x.iter().zip(weight).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum());
        }
    }
    Ok(out)
}

/// Whether a format takes case `number` of an op. Two formats take all cases; the others share them, because kernels use a block in
/// the same way for all formats.
pub(in crate::tensor::ops) fn takes_case(format: &Format, number: usize, cases: usize) -> bool {
    ["f32", "q4_0"].contains(&format.name)
        || (format.gguf_type.unwrap_or_default() as usize + number).is_multiple_of(cases)
}

/// The rows of the largest vocabularies (Gemma 3).
pub(in crate::tensor::ops) const LARGE_VOCABULARY: usize = 262_208;

/// Shapes [rows, columns] that a format's rows can have: odd, prime, large.
pub(super) fn weight_shapes(format: &Format) -> Vec<(usize, usize)> {
    let mut shapes: Vec<(usize, usize)> = match format.name {
        "f32" | "q4_0" => vec![(1, 32), (5, 96), (127, 160), (1021, 2048)],
        _ => vec![(5, 96), (127, 160), (61, 2080)],
    };
    for (_, columns) in &mut shapes {
        *columns = columns.next_multiple_of(format.block_size);
    }
    if format.block_size == 1 {
        shapes.extend([(1, 1), (7, 37), (61, 211), (130, 1030)]);
    }
    shapes
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(5);
    let mut cases = Vec::new();
    for format in in_cases() {
        for (rows, columns) in weight_shapes(format).into_iter().chain([(509, 4096)]) {
            cases.push(Case::new(MatVec, vec![rng.tensor(&[1, columns]), rng.weight(format, rows, columns)], 1e-5));
        }
    }
    let head = rng.weight(FORMATS[0], LARGE_VOCABULARY, 32);
    cases.push(Case::new(MatVec, vec![rng.tensor(&[1, 32]), head], 1e-5));
    cases
}
