//! Matrix product of several tokens' activations with a weight in any format.
//!
//! Each invocation computes a small tile of outputs in registers, so that a block of weights which was unpacked serves four
//! tokens. Operands are read through the caches, without workgroup memory.

use super::mat_vec::{infer_linear, ragged, reference_linear, weight_shapes};
use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::quant::{BLOCK, FORMATS};
use crate::tensor::{Case, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: x [tokens, columns], weight [rows, columns]. Output: [tokens, rows].
pub struct MatMul;

/// Rows and tokens that a workgroup of 8 × 8 invocations computes.
const TILE_ROWS: usize = 16;
const TILE_TOKENS: usize = 32;

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "mat_mul"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        Ok(vec![infer_linear("mat_mul", inputs)?])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (rows, _) = inputs[1].shape.matrix()?;
        Ok(Kernel {
            template: include_str!("mat_mul.wgsl"),
            modules: &[],
            defines: ragged(columns).into_iter().collect(),
            params: vec![rows as u32, columns as u32, columns.div_ceil(BLOCK) as u32, tokens as u32],
            grid: [rows.div_ceil(TILE_ROWS) as u32, tokens.div_ceil(TILE_TOKENS) as u32, 1],
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        reference_linear(inputs)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(6);
    let mut cases = Vec::new();
    for format in FORMATS {
        for (index, (rows, columns)) in weight_shapes(format).into_iter().enumerate() {
            let tokens = [2, 3, 37, 67][index % 4];
            let x = rng.tensor(&[tokens, columns]);
            cases.push(Case::new(MatMul, vec![x, rng.weight(format, rows, columns)], 1e-5));
        }
    }
    cases
}
