//! What of a model's weights a decoded token does not read.

use crate::error::Result;
use crate::model::Layout;
use crate::model::checkpoint::{Checkpoint, TensorInfo};
use crate::model::config::Config;
use crate::tensor::Capabilities;

/// Bytes on the GPU: of tables of which a token reads a row, of an encoder, of experts that a token does not use, and of a head that drafts.
pub(super) fn unread_bytes(
    checkpoint: &Checkpoint<'_>,
    config: &Config,
    layout: &Layout,
    capabilities: &Capabilities,
) -> Result<u64> {
    let is_output = config.tie_embeddings && !config.arch.is_encoder;
    // A token leaves the first number of parts unread; the second is the number of all parts.
    let unread = |tensor: &TensorInfo| match tensor.name.as_str() {
        "token_embd.weight" if is_output => (0, 1),
        "token_embd.weight" | "per_layer_token_embd.weight" => (1, 1),
        name if config.encoder.is_some() && name.starts_with("enc.") => (1, 1),
        name if name.starts_with("mtp.") => (1, 1),
        name if name.contains("_exps.") => match &config.experts {
            Some(experts) => ((experts.count - experts.used) as u64, experts.count as u64),
            None => (0, 1),
        },
        _ => (0, 1),
    };
    let mut bytes = 0u64;
    for tensor in checkpoint.tensors.iter().filter(|tensor| config.uses(&tensor.name)) {
        let (parts, of) = unread(tensor);
        if parts > 0 {
            bytes = bytes.saturating_add(layout.bytes(tensor, config, capabilities)? / of * parts);
        }
    }
    Ok(bytes)
}
