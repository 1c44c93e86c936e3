//! Quantising weights on their way to the GPU: unquantised numbers of a file become blocks, as GGML's reference quantiser makes them
//! (`quantize_row_q8_0_ref` and the like; `quantize_reference.rs` has its rules). For Q8_0, Q4_0 and IQ4_NL to the bit of these rules without
//! fused products and sums, as in the Python package gguf, which has the first two. For Q4_K and Q6_K, which choose among scales by
//! their errors, GPUs may fuse and divide as they do: of two that are as good, another may be chosen.

use super::Format;

/// The formats that weights can be quantised to.
pub const TARGETS: &[&str] = &["q8_0", "q4_0", "q4_k", "q6_k", "iq4_nl"];

/// The kernel that quantises to a format, and the module that reads the file's numbers.
pub(in crate::tensor) fn kernel(from: &Format, to: &Format) -> Option<(&'static str, &'static str)> {
    let kernel = match to.name {
        "q8_0" => crate::shader!("q8_0_quantize.wgsl"),
        "q4_0" => crate::shader!("q4_0_quantize.wgsl"),
        "q4_k" => crate::shader!("q4_k_quantize.wgsl"),
        "q6_k" => crate::shader!("q6_k_quantize.wgsl"),
        "iq4_nl" => crate::shader!("iq4_nl_quantize.wgsl"),
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
