//! MXFP4 in folders of gpt-oss: a tensor of bytes, each two neighbours of four bits, and one of exponents. Both become one tensor.

use std::collections::HashMap;

use crate::error::Result;
use crate::model::checkpoint::{TensorInfo, TensorValues};
use crate::model::gguf::GgmlType;
use crate::tensor::quant::Format;

const BLOCKS: &str = ".mxfp4_blocks";
const EXPONENTS: &str = ".mxfp4_scales";
/// Weights and bytes of a block.
const WEIGHTS: u64 = 32;
const BYTES: u64 = 16;

/// Whether a tensor holds one of the two.
pub(super) fn is_part(name: &str) -> bool {
    name.ends_with(BLOCKS) || name.ends_with(EXPONENTS)
}

/// The tensors with each two that belong together as one.
pub(super) fn joined(tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    let (parts, mut tensors): (Vec<_>, Vec<_>) = tensors.into_iter().partition(|tensor| is_part(&tensor.name));
    if parts.is_empty() {
        return Ok(tensors);
    }
    let Some(ty) = Format::by_name("mxfp4").and_then(|format| GgmlType::from_id(format.gguf_type?)) else {
        bail!(Internal, "there is no format MXFP4")
    };
    let by_name: HashMap<&str, &TensorInfo> = parts.iter().map(|part| (part.name.as_str(), part)).collect();
    for part in &parts {
        let stem = part.name.strip_suffix(BLOCKS).or(part.name.strip_suffix(EXPONENTS)).unwrap_or(&part.name);
        let other = |end: &str| by_name.get(format!("{stem}{end}").as_str()).copied();
        let (Some(blocks), Some(exponents)) = (other(BLOCKS), other(EXPONENTS)) else {
            bail!(MissingTensor, "of the blocks and the scales of {stem:?} the model has only one, {:?}", part.name);
        };
        if part.name.ends_with(EXPONENTS) {
            continue;
        }
        let [BYTES, of_row @ ..] = &blocks.dims[..] else {
            bail!(ShapeMismatch, "{:?} has the dimensions {:?}, wanted {BYTES} first", part.name, blocks.dims);
        };
        let ([in_row, rest @ ..], true) = (of_row, of_row == &exponents.dims[..]) else {
            bail!(
                ShapeMismatch,
                "the blocks of {stem:?} have the dimensions {:?} and its scales {:?}, wanted one scale for each {BYTES} bytes",
                blocks.dims,
                exponents.dims
            );
        };
        let (TensorValues::Stored { parts: blocks, .. }, TensorValues::Stored { parts: exponents, .. }) =
            (&blocks.values, &exponents.values)
        else {
            bail!(Internal, "{stem:?} is not stored")
        };
        let dims = [&[in_row.saturating_mul(WEIGHTS)], rest].concat();
        let values = TensorValues::Mxfp4 { blocks: blocks[0], exponents: exponents[0] };
        tensors.push(TensorInfo { name: format!("{stem}.weight"), dims, ty, values });
    }
    Ok(tensors)
}
