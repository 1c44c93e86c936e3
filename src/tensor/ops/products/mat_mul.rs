//! Matrix product of several tokens' activations with a weight in any format.
//!
//! A workgroup computes a tile of outputs, each invocation a small part of it in registers, from operands in workgroup memory: one
//! read serves 64 rows or 64 tokens. On software adapters, where barriers are expensive and workgroup memory is no faster than the
//! caches, invocations work alone.

use super::mat_vec::{LARGE_VOCABULARY, infer_linear, ragged, reference_linear, weight_shapes};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::on_cpu;
use crate::tensor::ops::Epilogue;
use crate::tensor::quant::{BLOCK, FORMATS, in_cases};
use crate::tensor::{Case, CpuTensors, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: x [tokens, columns], weight [rows, columns], and those of the epilogue. Output: [tokens, rows], unless there is a
/// residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatMul {
    /// What happens to the product besides storing it.
    pub epilogue: Epilogue,
}

/// Rows and tokens of a workgroup's tile.
const TILE: usize = 64;

/// Rows and tokens that a workgroup computes without workgroup memory.
const DIRECT_ROWS: usize = 64;
const DIRECT_TOKENS: usize = 4;

const OPERANDS: usize = 2;

impl Op for MatMul {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_mul"
    }

    fn mutates(&self) -> &'static [usize] {
        self.epilogue.mutates(OPERANDS)
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let product = infer_linear("mat_mul", &inputs[..OPERANDS.min(inputs.len())])?;
        self.epilogue.infer("mat_mul", inputs, OPERANDS, product)
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(capabilities.software, inputs, capabilities)
    }

    fn variants(&self, _: &[Desc], _: &Capabilities) -> Vec<Variant> {
        [0, 1].map(|direct| Variant::new(&[("direct", direct)])).to_vec()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(variant.get("direct") == 1, inputs, capabilities)
    }
}

impl Reference for MatMul {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (rows, _) = inputs[1].shape.matrix()?;
        let product = reference_linear(inputs)?;
        self.epilogue.reference(inputs, OPERANDS, product, [tokens, rows])
    }

    fn run_on_cpu(&self, tensors: CpuTensors<'_>) -> Result<()> {
        self.epilogue.multiply_on_cpu(tensors)
    }
}

impl MatMul {
    /// With tiles in workgroup memory, or with `direct`, without.
    fn kernel_of(&self, direct: bool, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        if direct {
            return direct_kernel(self.epilogue, false, inputs, capabilities);
        }
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (rows, _) = inputs[1].shape.matrix()?;
        let mut defines = self.epilogue.defines(1);
        defines.extend(ragged(columns));
        Ok(Kernel {
            template: crate::shader!("mat_mul.wgsl"),
            modules: &[],
            defines,
            params: vec![rows as u32, columns as u32, columns.div_ceil(BLOCK) as u32, tokens as u32],
            grid: [tokens.div_ceil(TILE) as u32, rows.div_ceil(TILE) as u32, 1],
        })
    }
}

/// The product without workgroup memory, of x [tokens, columns], in SoA (`tensor/soa.rs`) if `soa`, and weight [rows, columns].
pub(super) fn direct_kernel(
    epilogue: Epilogue,
    soa: bool,
    inputs: &[Desc],
    capabilities: &Capabilities,
) -> Result<Kernel> {
    let (tokens, columns) = inputs[0].shape.matrix()?;
    let (rows, _) = inputs[1].shape.matrix()?;
    let mut defines = epilogue.defines(1);
    defines.extend(ragged(columns));
    defines.extend(sharing(capabilities));
    if soa {
        defines.push(("SOA", Define::Flag));
    }
    Ok(Kernel {
        template: crate::shader!("mat_mul_direct.wgsl"),
        modules: &[],
        defines,
        params: vec![rows as u32, columns as u32, columns.div_ceil(BLOCK) as u32, tokens as u32],
        grid: [rows.div_ceil(DIRECT_ROWS) as u32, tokens.div_ceil(DIRECT_TOKENS) as u32, 1],
    })
}

/// Flags for invocations that want the same activations: they share them where a subgroup is always 4 or always 8 of them.
fn sharing(capabilities: &Capabilities) -> Vec<(&'static str, Define)> {
    match capabilities.subgroups {
        Some((4, 4)) => vec![("LANES", Define::U32(4)), ("SHARED", Define::Flag)],
        Some((8, 8)) => vec![("LANES", Define::U32(8)), ("LANES_8", Define::Flag), ("SHARED", Define::Flag)],
        _ => vec![("LANES", Define::U32(1))],
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(6);
    let mut cases = Vec::new();
    for format in in_cases() {
        for (index, (rows, columns)) in weight_shapes(format).into_iter().enumerate() {
            let tokens = [2, 3, 37, 67][index % 4];
            let epilogue = Epilogue { bias: index % 2 == 1, residual: index % 4 >= 2 };
            let mut inputs = vec![rng.tensor(&[tokens, columns]), rng.weight(format, rows, columns)];
            if epilogue.bias {
                inputs.push(rng.tensor(&[rows]));
            }
            if epilogue.residual {
                inputs.push(rng.tensor(&[tokens, rows]));
            }
            cases.push(Case::new(MatMul { epilogue }, inputs, 1e-5));
        }
    }
    let inputs = vec![rng.tensor(&[3, 32]), rng.weight(FORMATS[0], LARGE_VOCABULARY, 32)];
    cases.push(Case::new(MatMul { epilogue: Epilogue::NONE }, inputs, 1e-5));
    cases
}
