//! The names of the tensors of encoder-decoders: llama.cpp's files begin those of the decoder with `dec.`, and name the table of distances as
//! if it were the first layer's. Folders hold the embedding under one of three names, or under several.

use super::TensorInfo;
use crate::model::arch::{ARCHS, Arch};

/// The names that a table of tokens for both halves may have. The first one that is there counts; the others are the same table.
const EMBEDDINGS: [&str; 3] = ["token_embd.weight", "dec.token_embd.weight", "enc.token_embd.weight"];

/// Gives the tensors our names: those of the decoder without a prefix, those of its encoder with `enc.`, and those of an encoder alone
/// without one. Tensors of other architectures stay as they are.
pub(super) fn rename(arch: &'static Arch, tensors: &mut Vec<TensorInfo>) {
    let is_alone = ARCHS.iter().any(|whole| whole.encoder.is_some_and(|encoder| encoder.name == arch.name));
    if arch.encoder.is_none() && !is_alone {
        return;
    }
    // Nothing reads it (llama.cpp neither).
    tensors.retain(|tensor| !tensor.name.contains(".cross_attn_rel_b."));
    if let Some(name) = EMBEDDINGS.into_iter().find(|name| tensors.iter().any(|tensor| tensor.name == *name)) {
        tensors.retain(|tensor| tensor.name == name || !EMBEDDINGS.contains(&tensor.name.as_str()));
        for tensor in tensors.iter_mut().filter(|tensor| tensor.name == name) {
            tensor.name = EMBEDDINGS[0].to_owned();
        }
    }
    for tensor in tensors {
        let (half, rest) = match tensor.name.split_once('.') {
            Some((half @ ("enc" | "dec"), rest)) => (half, rest),
            _ => ("", tensor.name.as_str()),
        };
        let named = ours(arch, rest);
        tensor.name = match half {
            "enc" if !is_alone => format!("enc.{named}"),
            _ => named,
        };
    }
}

/// Our name within a half.
fn ours(arch: &Arch, name: &str) -> String {
    if let Some(end) = name.strip_prefix("blk.0.attn_rel_b.") {
        return format!("attn_rel_b.{end}");
    }
    let Some((layer, rest)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
        return name.to_owned();
    };
    let found = rest.split_once('.').and_then(|(stem, end)| {
        let found = arch.gguf_names.iter().find(|name| name.theirs == stem)?;
        Some(format!("blk.{layer}.{}.{end}", found.ours))
    });
    found.unwrap_or_else(|| name.to_owned())
}
