//! Norms of one token, and sums.

use crate::format::{Mismatch, expect};
use crate::lanes::{map, map2, sum, update};
use crate::simd::F32x4;

/// x + y, for as many numbers as both have.
pub fn add(x: &mut [f32], y: &[f32]) {
    update(x, y, F32x4::add);
}

/// x · y, for as many numbers as both have.
pub fn multiply(x: &mut [f32], y: &[f32]) {
    update(x, y, F32x4::mul);
}

/// x · factor.
pub fn scale(x: &mut [f32], factor: f32) {
    let factor = F32x4::splat(factor);
    map(x, |x| x.mul(factor));
}

/// x · factor / √(Σ x² + ε).
pub fn l2_norm(x: &mut [f32], factor: f32, epsilon: f32) {
    let squares = sum(x, |x| x.mul(x));
    scale(x, factor / (squares + epsilon).sqrt());
}

/// x / √(mean x² + ε) · weight (Zhang, Sennrich 2019).
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) -> Result<(), Mismatch> {
    expect("weights of a norm", x.len(), weight.len())?;
    expect("a normed token", x.len(), out.len())?;
    let squares = sum(x, |x| x.mul(x));
    let scale = F32x4::splat(1.0 / (squares / x.len() as f32 + epsilon).sqrt());
    map2(x, weight, out, |x, weight| x.mul(scale).mul(weight));
    Ok(())
}

/// (x − mean) / √(variance + ε) · weight + bias (Ba et al. 2016).
pub fn layer_norm(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    epsilon: f32,
    out: &mut [f32],
) -> Result<(), Mismatch> {
    expect("weights of a norm", x.len(), weight.len())?;
    expect("a normed token", x.len(), out.len())?;
    let mean = sum(x, |x| x) / x.len() as f32;
    for (out, x) in out.iter_mut().zip(x) {
        *out = x - mean;
    }
    let squares = sum(out, |x| x.mul(x));
    let scale = 1.0 / (squares / x.len() as f32 + epsilon).sqrt();
    for (out, weight) in out.iter_mut().zip(weight) {
        *out *= scale * weight;
    }
    if let Some(bias) = bias {
        expect("biases of a norm", x.len(), bias.len())?;
        out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
    }
    Ok(())
}
