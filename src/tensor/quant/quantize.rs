//! Quantising weights on their way to the GPU: unquantised numbers of a file become Q8_0 or Q4_0, rounded as in GGML's reference
//! quantiser (`quantize_row_q8_0_ref`, `quantize_row_q4_0_ref`). For Q4_0 its result depends on whether a compiler fuses products and
//! sums; here they are not fused, as in the Python package gguf.

use super::{BLOCK, Format};

/// The formats that weights can be quantised to.
pub const TARGETS: &[&str] = &["q8_0", "q4_0"];

/// The kernel that quantises to a format, and the module that reads the file's numbers.
pub(in crate::tensor) fn kernel(from: &Format, to: &Format) -> Option<(&'static str, &'static str)> {
    let kernel = match to.name {
        "q8_0" => crate::shader!("q8_0_quantize.wgsl"),
        "q4_0" => crate::shader!("q4_0_quantize.wgsl"),
        _ => return None,
    };
    let value = match from.name {
        "f32" => crate::shader!("../wgsl/file_value_f32.wgsl"),
        "f16" => crate::shader!("../wgsl/file_value_f16.wgsl"),
        "bf16" => crate::shader!("../wgsl/file_value_bf16.wgsl"),
        _ => return None,
    };
    Some((kernel, value))
}

/// The bytes of a block of 32 weights as in a file; `None` for formats that are not targets. The reference of the kernels.
pub fn reference(to: &Format, weights: &[f32; BLOCK]) -> Option<Vec<u8>> {
    let largest = weights.iter().fold(0f32, |largest, x| if x.abs() > largest.abs() { *x } else { largest });
    match to.name {
        "q8_0" => {
            let d = largest.abs() / 127.0;
            let id = if d == 0.0 { 0.0 } else { 1.0 / d };
            let quants = weights.iter().map(|x| (x * id).round() as i8 as u8);
            Some(half::f16::from_f32(d).to_le_bytes().into_iter().chain(quants).collect())
        }
        "q4_0" => {
            let d = largest / -8.0;
            let id = if d == 0.0 { 0.0 } else { 1.0 / d };
            let quant = |x: f32| ((x * id + 8.5) as u8).min(15);
            let quants = (0..16).map(|j| quant(weights[j]) | (quant(weights[j + 16]) << 4));
            Some(half::f16::from_f32(d).to_le_bytes().into_iter().chain(quants).collect())
        }
        _ => None,
    }
}
