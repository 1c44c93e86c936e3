//! Products of tokens with the matrices of their experts, which are chosen on the GPU and stacked in one weight.
//!
//! As in `mat_vec`, reading weights takes most of the time: neighbouring lanes read neighbouring blocks, and lanes share a row.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::{lanes_defines, subgroup_lanes};
use crate::tensor::op::expect;
use crate::tensor::ops::products::mat_vec::ragged;
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::soa::from_soa;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

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
const OPERANDS: usize = 3;

impl MatVecExperts {
    /// The output of a part among the inputs.
    fn out(&self) -> usize {
        OPERANDS + usize::from(self.bias)
    }
}

impl Op for MatVecExperts {
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
        let wanted = [f32, Some(DType::U32), None, f32, f32];
        expect("mat_vec_experts", inputs, &wanted[..self.out() + usize::from(self.part.is_some())])?;
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let (tokens, used) = inputs[1].shape.matrix()?;
        let (all_rows, weight_columns) = inputs[2].shape.matrix()?;
        let out = inputs.get(self.out());
        let rows_fit = match (self.part, out) {
            (Some(first), Some(out)) => {
                let (items, rows) = out.shape.matrix()?;
                items == tokens * used && all_rows.is_multiple_of(rows) && first + all_rows / rows <= self.experts
            }
            _ => self.experts > 0 && all_rows.is_multiple_of(self.experts),
        };
        let fits = (x_rows == tokens || x_rows == tokens * used)
            && columns == weight_columns
            && (!self.soa || columns.is_multiple_of(BLOCK))
            && rows_fit
            && biases_fit(self.bias.then(|| &inputs[OPERANDS]), self.experts, out, all_rows);
        if !fits {
            bail!(
                ShapeMismatch,
                "mat_vec_experts: x {}, ids {}, weight {} of {} experts, biases and output {:?}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                self.experts,
                &inputs[OPERANDS..]
            );
        }
        Ok(match self.part {
            Some(_) => vec![],
            None => vec![Desc::f32(&[tokens * used, all_rows / self.experts])],
        })
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let (items, rows) = inputs.get(self.out()).unwrap_or_else(|| &outputs[0]).shape.matrix()?;
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
                self.part.unwrap_or(0) as u32,
                (inputs[2].shape.dims()[0] / rows) as u32,
            ],
            grid: [row_groups, (items as u32).div_ceil(planes), planes],
        })
    }
}

impl Reference for MatVecExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let ids = inputs[1].to_u32()?;
        let (x, weight) = (inputs[0].to_f32()?, inputs[2].to_f32()?);
        let bias = if self.bias { inputs[OPERANDS].to_f32()? } else { vec![] };
        let (first, rows) = match (self.part, inputs.get(self.out())) {
            (Some(first), Some(out)) => (first, out.shape.dims()[1]),
            _ => (0, weight.len() / columns / self.experts),
        };
        let matrix = rows * columns;
        let mut out = match inputs.get(self.out()) {
            Some(out) => out.to_f32()?,
            None => vec![0.0; ids.len() * rows],
        };
        for (item, expert) in ids.iter().enumerate() {
            let Some(here) = (*expert as usize).checked_sub(first).filter(|here| *here < weight.len() / matrix) else {
                continue;
            };
            let x = &x[item / (ids.len() / x_rows) * columns..][..columns];
            let x = if self.soa { from_soa(x) } else { x.to_vec() };
            let matrix_rows = weight[here * matrix..].chunks_exact(columns);
            for (at, (out, row)) in out[item * rows..][..rows].iter_mut().zip(matrix_rows).enumerate() {
                let product = x.iter().zip(row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>();
                *out = (product + bias.get(*expert as usize * rows + at).map_or(0.0, |bias| f64::from(*bias))) as f32;
            }
        }
        if let Some(changed) = inputs.get_mut(self.out()) {
            changed.set_f32(&out);
            return Ok(vec![]);
        }
        Ok(vec![HostTensor::f32(&[ids.len(), rows], &out)])
    }
}

/// Whether biases are those of all experts of a weight, or of the output that a part of the experts writes.
pub(super) fn biases_fit(bias: Option<&Desc>, experts: usize, out: Option<&Desc>, all_rows: usize) -> bool {
    let rows = out.and_then(|out| out.shape.dims().get(1).copied()).unwrap_or(all_rows / experts.max(1));
    bias.is_none_or(|bias| bias.shape.dims() == [experts, rows])
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
