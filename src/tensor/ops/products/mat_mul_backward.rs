//! The way back through a product with a weight in any format: from the gradient of x·Wᵀ to that of x, which is the gradient times W. The
//! weight is unpacked tile by tile and stays as it is.
//!
//! A workgroup computes a tile of 64 tokens × 64 columns from operands in workgroup memory. On software adapters invocations work alone, as
//! in `mat_mul`.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::{BLOCK, FORMATS, in_cases};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

use super::mat_vec::weight_shapes;

/// Inputs: gradient [tokens, rows], weight [rows, columns]. Output: [tokens, columns].
#[derive(Clone, Copy, Debug, Default)]
pub struct MatMulBackward;

/// Tokens and columns of a workgroup's tile.
const TILE: usize = 64;

/// What a workgroup computes without workgroup memory: each of its invocations one block of columns for these tokens.
const DIRECT_TOKENS: usize = 4;
const DIRECT_BLOCKS: usize = 32;

impl Op for MatMulBackward {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_mul_backward"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.name(), inputs, &[Some(DType::F32), None])?;
        let (tokens, rows) = inputs[0].shape.matrix()?;
        let (weight_rows, columns) = inputs[1].shape.matrix()?;
        if rows != weight_rows {
            bail!(ShapeMismatch, "mat_mul_backward: gradient {} and weight {}", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![Desc::f32(&[tokens, columns])])
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

impl MatMulBackward {
    /// With tiles in workgroup memory, or with `direct`, without.
    fn kernel_of(&self, direct: bool, inputs: &[Desc]) -> Result<Kernel> {
        let (tokens, rows) = inputs[0].shape.matrix()?;
        let (_, columns) = inputs[1].shape.matrix()?;
        let blocks = columns.div_ceil(BLOCK);
        let (template, grid) = if direct {
            (
                crate::shader!("mat_mul_backward_direct.wgsl"),
                [blocks.div_ceil(DIRECT_BLOCKS), tokens.div_ceil(DIRECT_TOKENS)],
            )
        } else {
            (crate::shader!("mat_mul_backward.wgsl"), [tokens.div_ceil(TILE), columns.div_ceil(TILE)])
        };
        Ok(Kernel {
            template,
            modules: &[],
            defines: vec![],
            params: [rows, columns, blocks, tokens].map(|number| number as u32).to_vec(),
            grid: [grid[0] as u32, grid[1] as u32, 1],
        })
    }
}

impl Reference for MatMulBackward {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, rows) = inputs[0].shape.matrix()?;
        let (_, columns) = inputs[1].shape.matrix()?;
        let (gradient, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let mut out = Vec::with_capacity(tokens * columns);
        for gradient in gradient.chunks_exact(rows) {
            let mut sums = vec![0f64; columns];
            for (of_row, weight) in gradient.iter().zip(weight.chunks_exact(columns)) {
                sums.iter_mut().zip(weight).for_each(|(sum, weight)| *sum += f64::from(*of_row) * f64::from(*weight));
            }
            out.extend(sums.into_iter().map(|sum| sum as f32));
        }
        Ok(vec![HostTensor::f32(&[tokens, columns], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(61);
    let mut cases = Vec::new();
    for format in in_cases() {
        for (index, (rows, columns)) in weight_shapes(format).into_iter().enumerate() {
            let tokens = [2, 3, 37, 67][index % 4];
            let inputs = vec![rng.tensor(&[tokens, rows]), rng.weight(format, rows, columns)];
            cases.push(Case::new(MatMulBackward, inputs, 1e-5));
        }
    }
    // A head has more rows than llvmpipe has rounds in a loop.
    let inputs = vec![rng.tensor(&[3, 70_001]), rng.weight(FORMATS[0], 70_001, 32)];
    cases.push(Case::new(MatMulBackward, inputs, 1e-5));
    cases
}
