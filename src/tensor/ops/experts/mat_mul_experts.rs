//! Products of many tokens with the matrices of their experts, grouped by expert (`group_experts`): one read of an expert's matrix
//! serves a tile of the expert's tokens.

use super::group_experts::TILE;
use super::stack::{Stack, StackShape, add_grouped_cases};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::products::mat_vec::{ragged, takes_case};
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

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

impl Op for MatMulExperts {
    on_cpu!();

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
        let (f32, u32, stack) = (Some(DType::F32), Some(DType::U32), self.stack());
        expect("mat_mul_experts", inputs, &[f32, u32, u32, None, f32, f32][..stack.inputs()])?;
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let pairs = inputs[1].shape.elements();
        let (_, tile_words) = inputs[2].shape.matrix()?;
        match stack.shape(inputs, pairs)? {
            Some(shape) if shape.columns == columns && pairs.is_multiple_of(x_rows) && tile_words == 4 => {
                Ok(stack.outputs(&shape, pairs))
            }
            _ => {
                let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
                bail!(ShapeMismatch, "mat_mul_experts: {shapes:?} for {self:?}")
            }
        }
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(capabilities.software, inputs)
    }

    fn variants(&self, _: &[Desc], _: &Capabilities) -> Vec<Variant> {
        [0, 1].map(|direct| Variant::new(&[("direct", direct)])).to_vec()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        self.kernel_of(variant.get("direct") == 1, inputs)
    }
}

impl Reference for MatMulExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let x: Vec<f64> = inputs[0].to_f32()?.into_iter().map(f64::from).collect();
        self.stack().multiply_groups(&x, inputs)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let x = tensors.input(0)?.f32s()?.to_vec();
        self.stack().multiply_groups_on_cpu(&x, &mut tensors)
    }
}

impl MatMulExperts {
    fn stack(&self) -> Stack {
        let Self { experts, bias, part } = *self;
        Stack { experts, bias, part, weight: 3 }
    }

    /// With tiles in workgroup memory, or with `direct`, without.
    fn kernel_of(&self, direct: bool, inputs: &[Desc]) -> Result<Kernel> {
        let (x_rows, columns) = inputs[0].shape.matrix()?;
        let (pairs, tiles) = (inputs[1].shape.elements(), inputs[2].shape.dims()[0]);
        let Some(StackShape { rows, first, matrices, .. }) = self.stack().shape(inputs, pairs)? else {
            bail!(Internal, "mat_mul_experts: a kernel of shapes that don't fit");
        };
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
        let numbers = [rows, columns, columns.div_ceil(BLOCK), pairs / x_rows, first, matrices];
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
        let shapes =
            [[1, 1, 1, 1, 32], [37, 3, 5, 67, 96], [9, 8, 64, 19, 256], [131, 2, 4, 130, 1056], [35, 2, 3, 7, 37]];
        for (index, sizes) in shapes.into_iter().enumerate() {
            let columns = sizes[4];
            if columns % format.block_size != 0 || !takes_case(format, index, 2) {
                continue;
            }
            add_grouped_cases(
                &mut cases,
                &mut rng,
                format,
                sizes,
                |rng, x_rows| vec![rng.tensor(&[x_rows, columns])],
                |experts, bias, part, inputs| Case::new(MatMulExperts { experts, bias, part }, inputs, 1e-5),
            );
        }
    }
    cases
}
