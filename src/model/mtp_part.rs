//! The head that predicts further tokens (multi-token prediction) as a model of its own: the part of the tensors that describes it.
//!
//! llama.cpp's files have its tensors as those of a layer after the last one, and folders are brought to the same. Here their names
//! begin with `mtp.`, and what follows is their name in a model of one layer.

use super::arch::Arch;
use super::checkpoint::TensorInfo;
use super::gguf::Metadata;
use crate::error::Result;

/// How its tensors' names begin.
pub(super) const PREFIX: &str = "mtp.";
/// The tensors that it shares with the model.
pub(super) const SHARED: [&str; 2] = ["token_embd.weight", "output.weight"];

/// The tensors of a model whose further layers are that head, with its names.
pub(super) fn named(arch: &Arch, metadata: &Metadata, mut tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    let number = |key: &str| metadata.optional_u32(&format!("{}.{key}", arch.name));
    let (Some(all), Some(further @ 1..), true) =
        (number("block_count")?, number("nextn_predict_layers")?, arch.predicts_further)
    else {
        return Ok(tensors);
    };
    let first = all.saturating_sub(further);
    for tensor in &mut tensors {
        let Some((layer, rest)) = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        let Some(layer) = layer.parse::<u32>().ok().and_then(|layer| layer.checked_sub(first)) else { continue };
        tensor.name = match rest.strip_prefix("nextn.") {
            Some("shared_head_norm.weight") if layer == 0 => format!("{PREFIX}output_norm.weight"),
            Some("embed_tokens.weight") if layer == 0 => format!("{PREFIX}token_embd.weight"),
            Some("shared_head_head.weight") if layer == 0 => format!("{PREFIX}output.weight"),
            Some(rest) if layer == 0 => format!("{PREFIX}{rest}"),
            _ => format!("{PREFIX}blk.{layer}.{rest}"),
        };
    }
    Ok(tensors)
}
