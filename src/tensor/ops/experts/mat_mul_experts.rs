//! Products of many tokens with the matrices of their experts, grouped by expert (`group_experts`): one read of an expert's matrix
//! serves a tile of the expert's tokens.

use super::group_experts::{GroupExperts, TILE, random_ids};
use super::mat_vec_experts::biases_fit;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::expect;
use crate::tensor::ops::products::mat_vec::{ragged, takes_case};
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: x [tokens, columns] or [tokens · used, columns], order [tokens · used] u32 and tiles [n, 4] u32 of `group_experts`, weight
/// [experts · rows, columns], and with `bias` biases [experts, rows]. Output: [tokens · used, rows], as in `mat_vec_experts`. If the weight is a part of the
/// stack, the output is a further input (changed: the rows of the part's experts).
#[derive(Clone, Copy, Debug)]
pub struct MatMulExperts {
    /// The number of all experts, also if the weight holds a part.
    pub experts: usize,
    /// Whether experts have biases.
    pub bias: bool,
    /// The number of the weight's first expert, if it is a part of the stack.
    pub part: Option<usize>,
}

/// Rows that a workgroup computes, and the rows for software adapters.
const TILE_ROWS: usize = 64;
const DIRECT_ROWS: usize = 16;

const OPERANDS: usize = 4;

impl Op for MatMulExperts {
    fn name(&self) -> &'static str {
        "mat_mul_experts"
    }

    fn mutates(&self) -> &'static [usize] {
        match (self.part, self.bias) {
            (None, _) => &[],
            (Some(_), false) => &[4],
            (Some(_), true) => &[5],
        }
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        let wanted = [f32, u32, u32, None, f32, f32];
        expect("mat_mul_experts", inputs, &wanted[..self.out() + usize::from(self.part.is_some())])?;
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let pairs = inputs[1].shape.elements();
        let (_, tile_words) = inputs[2].shape.matrix()?;
        let (all_rows, weight_columns) = inputs[3].shape.matrix()?;
        let out = inputs.get(self.out());
        let biases_fit = biases_fit(self.bias.then(|| &inputs[OPERANDS]), self.experts, out, all_rows);
        let rows_fit = match (self.part, out) {
            (Some(first), Some(out)) => {
                let (out_rows, rows) = out.shape.matrix()?;
                out_rows == pairs && all_rows.is_multiple_of(rows) && first + all_rows / rows <= self.experts
            }
            _ => self.experts > 0 && all_rows.is_multiple_of(self.experts),
        };
        if !pairs.is_multiple_of(x_rows) || tile_words != 4 || columns != weight_columns || !rows_fit || !biases_fit {
            bail!(
                ShapeMismatch,
                "mat_mul_experts: x {}, order {}, tiles {}, weight {} of {} experts, biases and output {:?}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                inputs[3].shape,
                self.experts,
                &inputs[OPERANDS..]
            );
        }
        Ok(match self.part {
            Some(_) => vec![],
            None => vec![Desc::f32(&[pairs, all_rows / self.experts])],
        })
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(capabilities.software, inputs, outputs)
    }

    fn variants(&self, _: &[Desc], _: &Capabilities) -> Vec<Variant> {
        [0, 1].map(|direct| Variant::new(&[("direct", direct)])).to_vec()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], outputs: &[Desc], _: &Capabilities) -> Result<Kernel> {
        self.kernel_of(variant.get("direct") == 1, inputs, outputs)
    }
}

impl Reference for MatMulExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let (order, tiles) = (inputs[1].to_u32()?, inputs[2].to_u32()?);
        let (x, weight) = (inputs[0].to_f32()?, inputs[3].to_f32()?);
        let (first, rows) = match (self.part, inputs.get(self.out())) {
            (Some(first), Some(out)) => (first, out.shape.dims()[1]),
            _ => (0, weight.len() / columns / self.experts),
        };
        let mut out = match inputs.get(self.out()) {
            Some(out) => out.to_f32()?,
            None => vec![0.0; order.len() * rows],
        };
        let bias = if self.bias { inputs[OPERANDS].to_f32()? } else { vec![] };
        let matrices: Vec<&[f32]> = weight.chunks_exact(rows * columns).collect();
        for tile in tiles.chunks_exact(4) {
            let Some(matrix) = (tile[0] as usize).checked_sub(first).and_then(|here| matrices.get(here)) else {
                continue;
            };
            for pair in &order[tile[1] as usize..][..tile[2] as usize] {
                let pair = *pair as usize;
                let x = &x[pair / (order.len() / x_rows) * columns..][..columns];
                for (at, row) in matrix.chunks_exact(columns).enumerate() {
                    let product = x.iter().zip(row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>();
                    let bias = bias.get(tile[0] as usize * rows + at).map_or(0.0, |bias| f64::from(*bias));
                    out[pair * rows + at] = (product + bias) as f32;
                }
            }
        }
        if let Some(changed) = inputs.get_mut(self.out()) {
            changed.set_f32(&out);
            return Ok(vec![]);
        }
        Ok(vec![HostTensor::f32(&[order.len(), rows], &out)])
    }
}

impl MatMulExperts {
    /// The output of a part among the inputs.
    fn out(&self) -> usize {
        OPERANDS + usize::from(self.bias)
    }

    /// With tiles in workgroup memory, or with `direct`, without.
    fn kernel_of(&self, direct: bool, inputs: &[Desc], outputs: &[Desc]) -> Result<Kernel> {
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let (pairs, rows) = inputs.get(self.out()).unwrap_or_else(|| &outputs[0]).shape.matrix()?;
        let tiles = inputs[2].shape.dims()[0];
        let mut defines = vec![("TILE", Define::U32(TILE as u32))];
        defines.extend(ragged(columns));
        defines.push(("OUT_BINDING", Define::U32(3 + u32::from(self.bias))));
        if self.bias {
            defines.extend([("BIAS", Define::Flag), ("BIAS_BINDING", Define::U32(3))]);
        }
        let (template, row_groups) = if direct {
            (crate::shader!("mat_mul_experts_direct.wgsl"), rows.div_ceil(DIRECT_ROWS))
        } else {
            (crate::shader!("mat_mul_experts.wgsl"), rows.div_ceil(TILE_ROWS))
        };
        let numbers = [
            rows,
            columns,
            columns.div_ceil(BLOCK),
            pairs / x_rows,
            self.part.unwrap_or(0),
            inputs[3].shape.dims()[0] / rows,
        ];
        Ok(Kernel {
            template,
            modules: &[],
            defines,
            params: numbers.map(|number| number as u32).to_vec(),
            // Tiles are the fastest index: neighbours may have the same expert, and share its weights.
            grid: [tiles as u32, row_groups as u32, 1],
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(98);
    let mut cases = Vec::new();
    for format in in_cases() {
        // tokens, used, experts, rows, columns
        let shapes =
            [(1, 1, 1, 1, 32), (37, 3, 5, 67, 96), (9, 8, 64, 19, 256), (131, 2, 4, 130, 1056), (35, 2, 3, 7, 37)];
        for (index, (tokens, used, experts, rows, columns)) in shapes.into_iter().enumerate() {
            if columns % format.block_size != 0 || !takes_case(format, index, 2) {
                continue;
            }
            // The whole stack, and a part of it that has the experts of some of the ids.
            for (all, part) in [(experts, None), (experts + 3, Some(2))] {
                let mut ids = [random_ids(&mut rng, tokens, used, all)];
                let Ok(grouped) = (GroupExperts { experts: all }).reference(&mut ids) else { continue };
                let x_rows = if cases.len() % 2 == 0 { tokens } else { tokens * used };
                let mut inputs = vec![rng.tensor(&[x_rows, columns])];
                inputs.extend(grouped);
                inputs.push(rng.weight(format, experts * rows, columns));
                let bias = cases.len() % 3 == 1;
                inputs.extend(bias.then(|| rng.tensor(&[all, rows])));
                inputs.extend(part.map(|_| rng.tensor(&[tokens * used, rows])));
                cases.push(Case::new(MatMulExperts { experts: all, bias, part }, inputs, 1e-5));
            }
        }
    }
    cases
}
