//! What a person is told of a load: how far it is, and what was loaded.

use serde::Serialize;

use crate::model::{KvFormat, Precision};
use crate::tensor::{AdapterInfo, TuningReport};

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

/// What was loaded for drafts.
#[derive(Clone, Debug, Serialize)]
pub struct DraftInfo {
    pub architecture: String,
    pub parameters: u64,
    pub quantization: String,
    pub weight_bytes: u64,
    pub kv_cache_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AutotuneState {
    /// The caller did not want it.
    Off,
    /// A software adapter, where it is not done unasked.
    Software,
    /// All kernels are measured, now or at an earlier load.
    Done,
    /// Time ran out; the next load with what was found goes on.
    Partial,
}

/// What autotuning did.
#[derive(Clone, Debug, Serialize)]
pub struct AutotuneInfo {
    pub state: AutotuneState,
    #[serde(flatten)]
    pub report: TuningReport,
}

impl AutotuneInfo {
    /// Of a model whose kernels have no variants.
    pub(super) fn off() -> Self {
        Self { state: AutotuneState::Off, report: TuningReport::default() }
    }
}
