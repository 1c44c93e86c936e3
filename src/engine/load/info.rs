//! What a person is told of a load: how far it is, and what was loaded.

use serde::Serialize;

use super::autotune::AutotuneInfo;
use crate::engine::draft::DraftInfo;
use crate::model::{KvFormat, Precision};
use crate::tensor::AdapterInfo;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Header,
    Weights,
    Ready,
}

/// How far loading is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    pub phase: Phase,
    pub loaded: u64,
    pub total: u64,
}

/// What was loaded.
#[derive(Clone, Debug, Serialize)]
pub struct ModelInfo {
    pub name: Option<String>,
    /// The file has a chat template of its own, or the load was given one.
    pub has_chat_template: bool,
    pub architecture: String,
    pub parameters: u64,
    pub layers: usize,
    /// It goes on with a text. Otherwise it is an encoder, which makes embeddings only.
    pub generates: bool,
    /// It makes embeddings.
    pub embeds: bool,
    /// Tokens that fit the KV cache; of an encoder, those that a text may have.
    pub context_length: usize,
    /// Requests that run at once, each with a context of its own.
    pub max_sequences: usize,
    pub vocab_size: usize,
    pub embedding_length: usize,
    pub quantization: String,
    pub precision: Precision,
    pub kv_cache: KvFormat,
    pub weight_bytes: u64,
    /// Of the weights, those that a decoded token reads. Without the embedding table, where it isn't the output's too.
    pub weight_bytes_per_token: u64,
    /// Of all sequences.
    pub kv_cache_bytes: u64,
    /// The model that drafts, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftInfo>,
    pub adapter: AdapterInfo,
    pub autotune: AutotuneInfo,
    /// What may make the model answer worse than it could.
    pub warnings: Vec<Warning>,
}

/// Something that is no error and that a person should know.
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    /// Stable, for programs: `no_chat_template`.
    pub code: &'static str,
    pub message: String,
}
