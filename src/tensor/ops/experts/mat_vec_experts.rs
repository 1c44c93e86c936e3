//! Products of tokens with the matrices of their experts, which are chosen on the GPU and stacked in one weight.
//!
//! As in `mat_vec`, reading weights takes most of the time: neighbouring lanes read neighbouring blocks, and lanes share a row.

use super::stack::{Stack, StackShape};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::{lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::products::mat_vec::ragged;
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::soa::from_soa;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns] or [tokens · used, columns], ids [tokens, used] u32 (the experts of each token), weight
/// [experts · rows, columns], and with `bias` biases [experts, rows]. Output: [tokens · used, rows], for each pair of a token and an expert
/// the product of the expert's matrix with the token's row, or with the pair's row, and the expert's bias. If the weight is a part of
/// the stack, the output is a further input (changed: the rows of the part's experts).
#[derive(Clone, Copy, Debug)]
pub struct MatVecExperts {
    /// The number of all experts, also if the weight holds a part.
    pub experts: usize,
    /// Each row of x is in SoA (`tensor/soa.rs`).
    pub soa: bool,
    /// Whether experts have biases.
    pub bias: bool,
    /// The number of the weight's first expert, if it is a part of the stack.
    pub part: Option<usize>,
}

/// Rows that a team of lanes computes at once.
const ROWS: usize = 4;
const WORKGROUP: u32 = 64;

impl MatVecExperts {
    fn stack(&self) -> Stack {
        let Self { experts, bias, part, .. } = *self;
        Stack { experts, bias, part, weight: 2 }
    }
}

impl Op for MatVecExperts {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_vec_experts"
    }

    fn mutates(&self) -> &'static [usize] {
        match (self.part, self.bias) {
            (None, _) => &[],
            (Some(_), false) => &[3],
            (Some(_), true) => &[4],
        }
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let stack = self.stack();
        expect("mat_vec_experts", inputs, &[f32, Some(DType::U32), None, f32, f32][..stack.inputs()])?;
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let (tokens, used) = inputs[1].shape.matrix()?;
        match stack.shape(inputs, tokens * used)? {
            Some(shape)
                if shape.columns == columns
                    && (x_rows == tokens || x_rows == tokens * used)
                    && (!self.soa || columns.is_multiple_of(BLOCK)) =>
            {
                Ok(stack.outputs(&shape, tokens * used))
            }
            _ => {
                let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
                bail!(ShapeMismatch, "mat_vec_experts: {shapes:?} for {self:?}")
            }
        }
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let items = inputs[1].shape.elements();
        let Some(StackShape { rows, first, matrices, .. }) = self.stack().shape(inputs, items)? else {
            bail!(Internal, "mat_vec_experts: a kernel of shapes that don't fit");
        };
        let lanes = subgroup_lanes(capabilities, 32);
        let teams = WORKGROUP / lanes.unwrap_or(WORKGROUP);
        let mut defines = lanes_defines(WORKGROUP, lanes);
        defines.extend(ragged(columns));
        if self.soa {
            defines.push(("SOA", Define::Flag));
        }
        if self.part.is_some() {
            defines.push(("PART", Define::Flag));
        }
        defines.push(("OUT_BINDING", Define::U32(2 + u32::from(self.bias))));
        if self.bias {
            defines.extend([("BIAS", Define::Flag), ("BIAS_BINDING", Define::U32(2))]);
        }
        let limit = capabilities.max_workgroups_per_dimension;
        let row_groups = rows.div_ceil(ROWS * teams as usize) as u32;
        if row_groups > limit {
            bail!(
                AdapterLimits,
                "mat_vec_experts: {rows} rows need {row_groups} workgroups, this adapter allows {limit}"
            );
        }
        let planes = (items as u32).div_ceil(limit);
        Ok(Kernel {
            template: crate::shader!("mat_vec_experts.wgsl"),
            modules: &[],
            defines,
            params: vec![
                rows as u32,
                columns as u32,
                columns.div_ceil(BLOCK) as u32,
                items as u32,
                (items / x_rows) as u32,
                self.experts as u32,
                first as u32,
                matrices as u32,
            ],
            grid: [row_groups, (items as u32).div_ceil(planes), planes],
        })
    }
}

impl Reference for MatVecExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (x, ids) = (inputs[0].to_f32()?, inputs[1].to_u32()?);
        let row = |row: &[f32]| if self.soa { from_soa(row) } else { row.to_vec() };
        let x: Vec<f64> = x.chunks_exact(columns).flat_map(row).map(f64::from).collect();
        let items = ids.iter().map(|expert| *expert as usize).enumerate();
        self.stack().multiply(&x, ids.len(), items, inputs)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (_, columns) = tensors.input(0)?.desc.shape.matrix()?;
        let x = tensors.input(0)?.f32s()?;
        let row = |row: &[f32]| if self.soa { from_soa(row) } else { row.to_vec() };
        let x: Vec<f32> = x.chunks_exact(columns).flat_map(row).collect();
        let items: Vec<_> = tensors.input(1)?.u32s()?.iter().map(|expert| *expert as usize).enumerate().collect();
        let pairs = items.len();
        self.stack().multiply_on_cpu(&x, pairs, items, &mut tensors)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(76);
    let mut of_parts = Rng(96);
    let mut cases = Vec::new();
    for format in in_cases() {
        // tokens, used, experts, rows, columns
        for (tokens, used, experts, rows, columns) in
            [(1, 1, 1, 1, 32), (3, 2, 5, 37, 96), (1, 8, 128, 19, 256), (9, 3, 4, 130, 1056), (2, 2, 3, 7, 37)]
        {
            if columns % format.block_size != 0 {
                continue;
            }
            let ids: Vec<u32> = (0..tokens * used).map(|_| rng.below(experts) as u32).collect();
            let ids = HostTensor::u32(&[tokens, used], &ids);
            let weight = rng.weight(format, experts * rows, columns);
            for x_rows in [tokens, tokens * used] {
                let mut inputs = vec![rng.tensor(&[x_rows, columns]), ids.clone(), weight.clone()];
                let soa = columns.is_multiple_of(BLOCK) && cases.len() % 2 == 1;
                let bias = cases.len() % 4 >= 2;
                inputs.extend(bias.then(|| rng.tensor(&[experts, rows])));
                cases.push(Case::new(MatVecExperts { experts, soa, bias, part: None }, inputs, 1e-5));
            }
            // A part of the stack that has the experts of some of the ids.
            let ids: Vec<u32> = (0..tokens * used).map(|_| of_parts.below(experts + 4) as u32).collect();
            let x = of_parts.tensor(&[tokens, columns]);
            let bias = cases.len() % 2 == 0;
            let op = MatVecExperts { experts: experts + 4, soa: false, bias, part: Some(2) };
            let mut inputs = vec![x, HostTensor::u32(&[tokens, used], &ids), weight];
            inputs.extend(bias.then(|| of_parts.tensor(&[experts + 4, rows])));
            inputs.push(of_parts.tensor(&[tokens * used, rows]));
            cases.push(Case::new(op, inputs, 1e-5));
        }
    }
    cases
}
