//! Activations as int8 with one f32 scale per 32 columns, for products with int8 weights (the scheme of GGML's `block_q8_0`,
//! with the numbers and the scales in tensors of their own and the scales in f32).

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::BLOCK;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns], columns a multiple of 32. Outputs: quants [tokens, columns / 4] i8x4, in the order of the
/// columns, and scales [tokens, columns / 32]; x ≈ quant · scale.
///
/// A block's largest number becomes ±127, and halves are rounded to the even neighbour.
#[derive(Clone)]
pub struct Quantize;

impl Op for Quantize {
    on_cpu!();

    fn name(&self) -> &'static str {
        "quantize"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("quantize", inputs, &[Some(DType::F32)])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        quantized("quantize", tokens, columns)
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let blocks = inputs[0].shape.elements() / BLOCK;
        Ok(Kernel {
            template: crate::shader!("quantize.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![blocks as u32],
            grid: grid_2d(blocks.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Quantize {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        Ok(quantize_reference(&inputs[0].to_f32()?, tokens, columns))
    }
}

/// The outputs of an op that quantises [tokens, columns], or an error.
pub(in crate::tensor::ops) fn quantized(op: &str, tokens: usize, columns: usize) -> Result<Vec<Desc>> {
    if !columns.is_multiple_of(BLOCK) {
        bail!(ShapeMismatch, "{op}: {columns} columns can't be quantised in blocks of {BLOCK}");
    }
    Ok(vec![Desc::i8x4(&[tokens, columns / 4]), Desc::f32(&[tokens, columns / BLOCK])])
}

/// Quantises as `wgsl/quantize_block.wgsl` does.
pub(in crate::tensor::ops) fn quantize_reference(x: &[f32], tokens: usize, columns: usize) -> Vec<HostTensor> {
    let mut quants = Vec::with_capacity(x.len());
    let mut scales = Vec::with_capacity(x.len() / BLOCK);
    for block in x.chunks_exact(BLOCK) {
        let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
        let (inverse, scale) = if most < 1e-30 { (0.0, 0.0) } else { (127.0 / most, most / 127.0) };
        quants.extend(block.iter().map(|x| (x * inverse).round_ties_even() as i8));
        scales.push(scale);
    }
    vec![HostTensor::i8x4(&[tokens, columns / 4], &quants), HostTensor::f32(&[tokens, columns / BLOCK], &scales)]
}

/// The tolerance of a kernel's int8: a number within f32's error of a half may be rounded either way, which is a difference of one
/// in about 70.
pub(in crate::tensor::ops) const QUANTIZED_TOLERANCE: f64 = 3e-4;

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(19);
    let mut cases: Vec<Case> = [[1, 32], [3, 96], [17, 2048], [67, 4128]]
        .iter()
        .map(|dims| Case::new(Quantize, vec![rng.tensor(dims)], QUANTIZED_TOLERANCE))
        .collect();
    // Zeros, numbers too small for a scale, and halves: the scale of the last block is one.
    let mut x = vec![0.0; 32];
    x.extend([1e-32; 32]);
    x.extend((0..32).map(|i| if i == 0 { 127.0 } else { i as f32 - 15.5 }));
    cases.push(Case::new(Quantize, vec![HostTensor::f32(&[1, 96], &x)], 0.0));
    cases
}
