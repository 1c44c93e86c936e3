//! What callers are told of a load: how far it is, and what was loaded.

use serde::Serialize;

use super::options::{DeviceReason, PerLayerEmbeddings};
use crate::model::{KvFormat, Precision};
use crate::tensor::{AdapterInfo, DeviceKind, TuningReport};

/// What a load is doing: it reads the headers, it reads the weights, or the model is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The headers are read.
    Header,
    /// The weights are read.
    Weights,
    /// The model can be used.
    Ready,
}

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Progress {
    /// What happens now.
    pub phase: Phase,
    /// Bytes read so far.
    pub loaded: u64,
    /// Bytes of the headers and the weights; 0 while that is not known.
    pub total: u64,
}

/// What was loaded.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelInfo {
    /// What runs it.
    pub device: DeviceKind,
    /// Why that: `requested` by the option `device`, `gpu_available`, `no_webgpu` in this browser, `no_adapter`, a `software_adapter`,
    /// `adapter_limits` that the model is too large for, or `device_lost` more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_reason: Option<DeviceReason>,
    /// On the CPU, how many threads compute: the option `threads`, or as many as could be started. Not given for a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// The name that the file gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The file has a chat template, or the load was given one. Otherwise chats are written in ChatML.
    pub has_chat_template: bool,
    /// As GGUF files call it: `llama`, `qwen2`.
    pub architecture: String,
    /// It generates text. False for an encoder, and for a decoder with a head that scores or labels texts: `chat` and `completions` reject.
    pub generates: bool,
    /// An encoder reads the prompt, and a decoder answers it (T5): `completions` does that, and `chat` rejects.
    pub is_encoder_decoder: bool,
    /// It makes embeddings: it is an encoder, or its files say how the vectors of tokens become one.
    pub embeds: bool,
    /// It ranks documents by a query: `rerank` works.
    pub reranks: bool,
    /// What it labels texts with, if it does: `classify` works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, ts(as = "Option<Vec<String>>"))]
    pub labels: Vec<String>,
    /// How many weights the model has.
    pub parameters: u64,
    /// Blocks of attention and feed-forward.
    pub layers: usize,
    /// The most tokens of a prompt with its answer; for an encoder, the most tokens of a text.
    pub context_length: usize,
    /// How many requests run at the same time, each with a context of its own.
    pub max_sequences: usize,
    /// How many logits a step gives, at least the number of the tokenizer's tokens.
    pub vocab_size: usize,
    /// Length of the embeddings. But for models with layers after their pooling it is that of a token's vector between layers.
    pub embedding_length: usize,
    /// The type that most bytes of the matrices have on the GPU, for example `Q4_K`, or `INT4_128` of a folder in GPTQ.
    pub quantization: String,
    /// The option, or its default on this adapter; always `exact` for an encoder.
    pub precision: Precision,
    /// The option, or its default on this adapter.
    pub kv_cache: KvFormat,
    /// Bytes on the GPU.
    pub weight_bytes: u64,
    /// Bytes of the weights that each decoded token reads: all, except tables of which it reads a row, an encoder, the experts that it does not use, and a
    /// head that drafts.
    pub weight_bytes_per_token: u64,
    /// Where the table of per-layer embeddings is; `device` for models without one.
    pub per_layer_embeddings: PerLayerEmbeddings,
    /// Bytes on the GPU, of all sequences together.
    pub kv_cache_bytes: u64,
    /// The head for multi-token prediction is loaded: `speculation: {type: 'mtp'}` works.
    pub multi_token_prediction: bool,
    /// The draft model, if one was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftInfo>,
    /// Where the model runs.
    pub adapter: AdapterInfo,
    /// What was tuned, now or earlier.
    pub autotune: AutotuneInfo,
    /// What may make the model's answers worse. `onWarning` is called with each.
    pub warnings: Vec<Warning>,
}

/// Something that is no error, but that a person should know.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Warning {
    /// Stable, for programs. `no_chat_template`: the model has no template, as base models do, so chats are written in ChatML, which it may
    /// not have been trained with. `ignored_head`: the model was trained for a task whose head is not computed (labels of tokens, answers to
    /// questions), so what is made of it are embeddings that nobody trained. `ignored_parts`: of a model with several parts, such
    /// as one that sees images, the text model alone runs. `shorter_context`: the GPU has no room for the default context, so a shorter one was
    /// taken (`info.context_length`). `fewer_threads`: on the CPU fewer threads compute than were asked for, or than there could be (`info.threads`).
    /// `moved_to_cpu`: there is a GPU, and with the device `auto` the model runs on the CPU, since it is too large for the GPU's limits or the GPU was lost.
    #[cfg_attr(
        test,
        ts(
            type = "'no_chat_template' | 'ignored_head' | 'ignored_parts' | 'shorter_context' | 'fewer_threads' | 'moved_to_cpu'"
        )
    )]
    pub code: &'static str,
    /// For people; it may change.
    pub message: String,
}

impl Warning {
    /// Of a model with parts besides its text model.
    pub(super) fn ignored_parts(parts: &str) -> Self {
        Self {
            code: "ignored_parts",
            message: format!(
                "of the model's parts the text model alone runs; left out: {parts}. It takes in text and no images, and gives one token \
                 at a time"
            ),
        }
    }

    /// Of a model with a head for another task, which has this name.
    pub(super) fn ignored_head(head: &str) -> Self {
        Self {
            code: "ignored_head",
            message: format!(
                "the model has a head for another task ({head}), which is not computed: its embeddings were not trained to be compared; use \
                 a model for embeddings"
            ),
        }
    }
}

/// A model that drafts for another one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DraftInfo {
    /// As GGUF files call it.
    pub architecture: String,
    /// How many weights it has.
    pub parameters: u64,
    /// The type that most bytes of its matrices have.
    pub quantization: String,
    /// Bytes on the GPU.
    pub weight_bytes: u64,
    /// Bytes on the GPU, for one sequence.
    pub kv_cache_bytes: u64,
}

/// `done`: every kernel is tuned, now or by an earlier load. `partial`: time ran out, and the next load continues. `software`: not done on
/// a software adapter. `off`: not wanted, or the model is an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum AutotuneState {
    /// Not wanted, or the model is an encoder.
    Off,
    /// Not done on a software adapter.
    Software,
    /// Every kernel is tuned.
    Done,
    /// Time ran out.
    Partial,
}

/// What autotuning did.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct AutotuneInfo {
    /// How far it came.
    pub state: AutotuneState,
    /// What was measured.
    #[serde(flatten)]
    pub report: TuningReport,
}

impl AutotuneInfo {
    /// For an encoder, whose kernels have no variants.
    pub(super) fn off() -> Self {
        Self { state: AutotuneState::Off, report: TuningReport::default() }
    }
}
