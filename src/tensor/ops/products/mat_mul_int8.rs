//! Matrix product of several tokens' int8 activations with a weight whose format has an int8 view: integer dot products
//! within blocks of 32 columns, f32 sums of the blocks times both scales. The precision `fast`.
//!
//! The tiles in workgroup memory are those of any blocked product. It is several times as fast as f32, because four products of int8
//! are one instruction (the idea of scales by vector is from LLM.int8(), Dettmers et al. 2022).

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Epilogue;
use crate::tensor::quant::{BLOCK, Int8View, in_cases};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: quants [tokens, columns / 4] i8x4 and scales [tokens, columns / 32], as `quantize` makes them, weight
/// [rows, columns], and those of the epilogue. Output: [tokens, rows], unless there is a residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatMulInt8 {
    /// What happens to the product besides storing it.
    pub epilogue: Epilogue,
}

/// Rows of a workgroup's tile, and invocations that share its tokens.
pub(in crate::tensor::ops) const TILE_ROWS: usize = 64;
const TOKEN_INVOCATIONS: usize = 8;

/// From this number of workgroups on, each invocation takes eight tokens instead of four: it then reads less workgroup memory for each
/// product. With fewer workgroups a large GPU would be partly idle.
const MANY_WORKGROUPS: usize = 256;

/// How the product is tiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// No workgroup memory: for software adapters.
    Direct,
    /// Tokens of an invocation, 4 or 8, and the number of steps whose operands are in workgroup memory, 1 or 2.
    Tiles { tokens: u32, buffers: u32 },
}

impl Division {
    fn choose(inputs: &[Desc], capabilities: &Capabilities) -> Result<Self> {
        if capabilities.software {
            return Ok(Self::Direct);
        }
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (rows, _) = inputs[2].shape.matrix()?;
        let workgroups = tokens.div_ceil(8 * TOKEN_INVOCATIONS) * rows.div_ceil(TILE_ROWS);
        let tokens = if workgroups < MANY_WORKGROUPS { 4 } else { 8 };
        Ok(Self::Tiles { tokens, buffers: most_buffers(&inputs[2], capabilities) })
    }

    fn variant(self) -> Variant {
        match self {
            Self::Direct => Variant::new(&[("tokens", 1), ("buffers", 0)]),
            Self::Tiles { tokens, buffers } => Variant::new(&[("tokens", tokens), ("buffers", buffers)]),
        }
    }

    fn of(variant: &Variant) -> Self {
        match variant.get("buffers") {
            0 => Self::Direct,
            buffers => Self::Tiles { tokens: variant.get("tokens"), buffers },
        }
    }
}

/// The most workgroup memory of a step: words and scales of both operands, and the further data of the view.
fn step_bytes(view: Int8View) -> u32 {
    const SCALES: u32 = 2 * 64 * 4;
    let parts = if view.halves { 2 } else { 1 };
    let offsets = if view.offsets { (2 + parts) * SCALES } else { 0 };
    2 * 4 * 66 * 16 + (1 + parts) * SCALES + offsets
}

/// Rows and tokens that a workgroup computes on software adapters.
const DIRECT_ROWS: usize = 64;
const DIRECT_TOKENS: usize = 4;

const OPERANDS: usize = 3;

impl Op for MatMulInt8 {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_mul_int8"
    }

    fn mutates(&self) -> &'static [usize] {
        self.epilogue.mutates(OPERANDS)
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let operands = &inputs[..OPERANDS.min(inputs.len())];
        expect("mat_mul_int8", operands, &[Some(DType::I8x4), Some(DType::F32), None])?;
        let (tokens, words) = inputs[0].shape.matrix()?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        if let DType::Weight(format) = inputs[2].dtype
            && format.int8.is_none()
        {
            bail!(DtypeMismatch, "mat_mul_int8: {} weights can't be seen as int8; take mat_mul", format.name);
        }
        if words * 4 != columns || inputs[1].shape.dims() != [tokens, columns / BLOCK] {
            bail!(
                ShapeMismatch,
                "mat_mul_int8: words {} and scales {} of activations, weight {}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape
            );
        }
        self.epilogue.infer("mat_mul_int8", inputs, OPERANDS, Desc::f32(&[tokens, rows]))
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(Division::choose(inputs, capabilities)?, inputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        let tiles = (1..=most_buffers(&inputs[2], capabilities))
            .flat_map(|buffers| [4, 8].map(|tokens| Division::Tiles { tokens, buffers }));
        std::iter::once(Division::Direct).chain(tiles).map(Division::variant).collect()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(Division::of(variant), inputs, capabilities)
    }

    fn tuning_sizes(&self, inputs: &[Desc]) -> [usize; 3] {
        let [rows, columns] = [0, 1].map(|dim| inputs[2].shape.dims().get(dim).copied().unwrap_or_default());
        // With few tokens there are few workgroups, for which the rule was measured.
        [rows, columns, usize::from(inputs[0].shape.dims()[0] > 128)]
    }
}

impl Reference for MatMulInt8 {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let (quants, scales, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let x: Vec<f64> =
            quants.iter().enumerate().map(|(i, q)| f64::from(*q) * f64::from(scales[i / BLOCK])).collect();
        let mut product = Vec::with_capacity(tokens * rows);
        for x in x.chunks_exact(columns) {
            for weight in weight.chunks_exact(columns) {
                product.push(x.iter().zip(weight).map(|(x, w)| x * f64::from(*w)).sum());
            }
        }
        self.epilogue.reference(inputs, OPERANDS, product, [tokens, rows])
    }
}

/// The number of steps whose operands fit in workgroup memory, 1 or 2.
pub(in crate::tensor::ops) fn most_buffers(weight: &Desc, capabilities: &Capabilities) -> u32 {
    let view = match weight.dtype {
        DType::Weight(format) => format.int8,
        _ => None,
    };
    if 2 * step_bytes(view.unwrap_or_default()) <= capabilities.max_workgroup_storage_size { 2 } else { 1 }
}

impl MatMulInt8 {
    fn kernel_of(&self, division: Division, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let mut defines = self.epilogue.defines(2);
        if capabilities.packed_dot {
            defines.push(("PACKED_DOT", Define::Flag));
        }
        let params = vec![rows as u32, (columns / BLOCK) as u32, tokens as u32];
        Ok(match division {
            Division::Direct => Kernel {
                template: crate::shader!("mat_mul_int8_direct.wgsl"),
                modules: &[],
                defines,
                params,
                grid: [rows.div_ceil(DIRECT_ROWS) as u32, tokens.div_ceil(DIRECT_TOKENS) as u32, 1],
            },
            Division::Tiles { tokens: tokens_each, buffers } => {
                defines.push(("BUFFERS", Define::U32(buffers)));
                if tokens_each == 8 {
                    defines.push(("EIGHT", Define::Flag));
                }
                let tile_tokens = tokens_each as usize * TOKEN_INVOCATIONS;
                Kernel {
                    template: crate::shader!("mat_mul_int8.wgsl"),
                    modules: &[],
                    defines,
                    params,
                    grid: [tokens.div_ceil(tile_tokens) as u32, rows.div_ceil(TILE_ROWS) as u32, 1],
                }
            }
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(18);
    let mut cases = Vec::new();
    // tokens, rows, columns
    let shapes = [
        (1, 1, 32),
        (2, 5, 96),
        (3, 127, 160),
        (37, 61, 64),
        (130, 257, 544),
        (67, 131, 2048),
        (64, 64, 256),
        (200, 190, 352),
    ];
    for (number, format) in in_cases().filter(|format| format.int8.is_some()).enumerate() {
        for (index, (tokens, rows, columns)) in shapes.into_iter().enumerate() {
            // The first two formats take all shapes; each shape is also taken by several of the others.
            if number > 1 && !(index + number).is_multiple_of(3) {
                continue;
            }
            let columns = usize::next_multiple_of(columns, format.block_size);
            let epilogue = Epilogue { bias: index % 2 == 1, residual: index % 4 >= 2 };
            let quants: Vec<i8> = (0..tokens * columns).map(|_| (rng.below(255) as i32 - 127) as i8).collect();
            let mut inputs = vec![
                HostTensor::i8x4(&[tokens, columns / 4], &quants),
                rng.tensor(&[tokens, columns / BLOCK]),
                rng.weight(format, rows, columns),
            ];
            if epilogue.bias {
                inputs.push(rng.tensor(&[rows]));
            }
            if epilogue.residual {
                inputs.push(rng.tensor(&[tokens, rows]));
            }
            cases.push(Case::new(MatMulInt8 { epilogue }, inputs, 1e-5));
        }
    }
    cases
}
