//! What a tensor of the files is: a vector or a matrix, and in which format.

use super::checkpoint::{TensorInfo, TensorValues};
use crate::error::Result;
use crate::tensor::quant::{self, Format};

/// The format of a tensor in its file.
pub(super) fn format_of(tensor: &TensorInfo) -> Result<&'static Format> {
    if let TensorValues::Packed(packed) = &tensor.values {
        return Ok(packed.format);
    }
    Format::by_gguf_type(tensor.ty.id()).ok_or_else(|| {
        err!(
            UnsupportedTensorType,
            "the tensor {:?} is of type {}; supported are {}: use a file of one of these",
            tensor.name,
            tensor.ty.name(),
            quant::supported()
        )
    })
}

/// The rows and columns of a matrix, or of a stack of matrices.
pub(super) fn matrix_of(tensor: &TensorInfo) -> Result<(usize, usize)> {
    let [columns, rows @ ..] = &tensor.dims[..] else {
        bail!(ShapeMismatch, "the tensor {:?} has no dimensions", tensor.name)
    };
    let rows: u64 = rows.iter().product(); // no more than the elements, whose number does not overflow
    match (usize::try_from(rows), usize::try_from(*columns)) {
        (Ok(rows), Ok(columns)) => Ok((rows, columns)),
        _ => {
            bail!(ShapeMismatch, "the tensor {:?} has the dimensions {:?}, more than is read", tensor.name, tensor.dims)
        }
    }
}

/// Whether a tensor is kept as f32: those of one dimension, the norms for each head, short convolutions, the decays of states, and what mixes
/// residual streams.
pub(super) fn is_vector(tensor: &TensorInfo) -> bool {
    const PARTS: [&str; 7] = [
        ".attn_q_norm.",
        ".attn_k_norm.",
        ".ssm_conv1d.",
        ".shortconv.conv.",
        "attn_rel_b.",
        ".altup_predict_coef.",
        ".altup_correct_coef.",
    ];
    tensor.dims.len() == 1 || tensor.name.ends_with(".ssm_a") || PARTS.iter().any(|part| tensor.name.contains(part))
}
