//! Matrix product of several tokens' int8 activations with a weight whose format has an int8 view: integer dot products
//! within blocks of 32 columns, f32 sums of the blocks times both scales. The precision `fast`.
//!
//! The tiling through workgroup memory is that of any blocked product; that four products of int8 are one instruction makes
//! it several times as fast as f32 (LLM.int8(), Dettmers et al. 2022, gives the idea of scales by vector).

use super::Epilogue;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::expect;
use crate::tensor::quant::{BLOCK, FORMATS, Int8View};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng, Variant};

/// Inputs: quants [tokens, columns / 4] i8x4 and scales [tokens, columns / 32], as `quantize` makes them, weight
/// [rows, columns], and those of the epilogue. Output: [tokens, rows], unless there is a residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatMulInt8 {
    pub epilogue: Epilogue,
}

/// Rows and tokens of a workgroup's tile.
const TILE: usize = 64;

/// Workgroup memory that a step takes: words and scales of both operands (`STRIDE` and `SCALES` in the kernel), and what the view
/// needs besides.
fn step_bytes(view: Int8View) -> u32 {
    const SCALES: u32 = 2 * 64 * 4;
    let parts = if view.halves { 2 } else { 1 };
    let offsets = if view.offsets { (2 + parts) * SCALES } else { 0 };
    2 * 4 * 66 * 16 + (1 + parts) * SCALES + offsets
}

/// Rows and tokens that a workgroup of the variant for software adapters computes.
const DIRECT_ROWS: usize = 16;
const DIRECT_TOKENS: usize = 32;

const OPERANDS: usize = 3;

impl Op for MatMulInt8 {
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
        let buffers = match capabilities.software {
            true => 0,
            false => most_buffers(inputs, capabilities),
        };
        self.kernel_of(buffers, inputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        (0..=most_buffers(inputs, capabilities)).map(|buffers| Variant::new(&[("buffers", buffers)])).collect()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(variant.get("buffers"), inputs, capabilities)
    }

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

/// How many steps' operands fit in workgroup memory, of the two that are of use.
fn most_buffers(inputs: &[Desc], capabilities: &Capabilities) -> u32 {
    let view = match inputs[2].dtype {
        DType::Weight(format) => format.int8,
        _ => None,
    };
    if 2 * step_bytes(view.unwrap_or_default()) <= capabilities.max_workgroup_storage_size { 2 } else { 1 }
}

impl MatMulInt8 {
    /// With so many buffers in workgroup memory; with none, invocations work by themselves.
    fn kernel_of(&self, buffers: u32, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let mut defines = self.epilogue.defines(2);
        if capabilities.packed_dot {
            defines.push(("PACKED_DOT", Define::Flag));
        }
        let params = vec![rows as u32, (columns / BLOCK) as u32, tokens as u32];
        if buffers == 0 {
            return Ok(Kernel {
                template: include_str!("mat_mul_int8_direct.wgsl"),
                modules: &[],
                defines,
                params,
                grid: [rows.div_ceil(DIRECT_ROWS) as u32, tokens.div_ceil(DIRECT_TOKENS) as u32, 1],
            });
        }
        defines.push(("BUFFERS", Define::U32(buffers)));
        Ok(Kernel {
            template: include_str!("mat_mul_int8.wgsl"),
            modules: &[],
            defines,
            params,
            grid: [tokens.div_ceil(TILE) as u32, rows.div_ceil(TILE) as u32, 1],
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
    for (number, format) in FORMATS.iter().filter(|format| format.int8.is_some()).enumerate() {
        for (index, (tokens, rows, columns)) in shapes.into_iter().enumerate() {
            // All shapes are taken by the first two, and by several of the others.
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
