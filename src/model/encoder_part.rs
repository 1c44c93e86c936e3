//! The encoder of an encoder-decoder as a model of its own: the part of the metadata and of the tensors that describes it.
//!
//! In the metadata both halves have the keys of the whole, except for those that begin with `encoder.`, which are the encoder's. Its tensors
//! are named `enc.…`, and without an embedding of its own it has the decoder's.

use super::arch::Arch;
use super::checkpoint::TensorInfo;
use super::gguf::Metadata;

/// How its tensors' names begin.
pub(super) const PREFIX: &str = "enc.";
/// The tensor that both halves may share.
pub(super) const EMBEDDING: &str = "token_embd.weight";

/// Keys of the whole that say something else of an encoder.
const OF_THE_DECODER: [&str; 2] = ["decoder_block_count", "decoder_start_token_id"];

/// The metadata of the encoder of a model of the architecture `whole`.
pub(super) fn metadata(of_whole: &Metadata, whole: &Arch, encoder: &Arch) -> Metadata {
    let mut metadata = Metadata::default();
    let keys =
        || of_whole.iter().filter_map(|(key, value)| Some((key.strip_prefix(whole.name)?.strip_prefix('.')?, value)));
    let own = keys().filter_map(|(key, value)| Some((key.strip_prefix("encoder.")?, value)));
    // The first value of a key counts.
    for (key, value) in own.chain(keys().filter(|(key, _)| !OF_THE_DECODER.contains(key))) {
        metadata.insert(format!("{}.{key}", encoder.name), value.clone());
    }
    metadata
}

/// The tensors of the encoder under the names that they have in a model of its own, and those of the decoder.
pub(super) fn divided(tensors: &[TensorInfo]) -> (Vec<TensorInfo>, Vec<TensorInfo>) {
    let own = |tensor: &TensorInfo| {
        let name = tensor.name.strip_prefix(PREFIX)?;
        Some(TensorInfo { name: name.to_owned(), ..tensor.clone() })
    };
    let mut encoder: Vec<TensorInfo> = tensors.iter().filter_map(own).collect();
    let decoder: Vec<TensorInfo> = tensors.iter().filter(|tensor| !tensor.name.starts_with(PREFIX)).cloned().collect();
    if !encoder.iter().any(|tensor| tensor.name == EMBEDDING) {
        encoder.extend(decoder.iter().find(|tensor| tensor.name == EMBEDDING).cloned());
    }
    (encoder, decoder)
}
