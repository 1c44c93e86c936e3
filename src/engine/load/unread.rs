//! What of a model's weights a decoded token does not read.

use crate::model::checkpoint::{Checkpoint, TensorInfo};
use crate::model::config::Config;

/// Bytes, as the files have them: of tables of which a token reads a row, of an encoder, of experts that a token does not use, and of a
/// head that drafts.
pub(super) fn unread_bytes(checkpoint: &Checkpoint<'_>, config: &Config) -> u64 {
    let is_output = config.tie_embeddings && !config.arch.is_encoder;
    let unread = |tensor: &TensorInfo| {
        let bytes = tensor.bytes();
        match tensor.name.as_str() {
            "token_embd.weight" if is_output => 0,
            "token_embd.weight" | "per_layer_token_embd.weight" => bytes,
            name if config.encoder.is_some() && name.starts_with("enc.") => bytes,
            name if name.starts_with("mtp.") => bytes,
            name if name.contains("_exps.") => match &config.experts {
                Some(experts) => bytes / experts.count as u64 * (experts.count - experts.used) as u64,
                None => 0,
            },
            _ => 0,
        }
    };
    checkpoint.tensors.iter().filter(|tensor| config.uses(&tensor.name)).map(unread).sum()
}
