//! What a model is, and what running it would take, from its headers alone.

use std::collections::BTreeMap;

use serde::Serialize;

use super::about;
use super::info::Warning;
use super::options::LoadOptions;
use super::plan::{Known, Plan};
use crate::error::{Error, Result};
use crate::model::checkpoint::{Checkpoint, Origin, TensorInfo};
use crate::model::config::Config;
use crate::model::folder::Folder;
use crate::tensor::{AdapterInfo, Device};

/// What the headers of a model say. Fields that need a supported architecture are missing for others.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Inspection {
    /// The name that the file gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The format of the files.
    #[cfg_attr(test, ts(type = "'gguf' | 'safetensors'"))]
    pub format: &'static str,
    /// As GGUF files call it: `llama`, `qwen2`.
    pub architecture: String,
    /// Numbers in all tensors of the files.
    pub parameters: u64,
    /// The type that most of the bytes have: `Q4_K`, `BF16`, `GPTQ`.
    pub quantization: String,
    /// Bytes in the files, by type of tensor.
    pub tensor_types: BTreeMap<&'static str, u64>,
    /// How many files hold the tensors.
    pub files: usize,
    /// The size of these files.
    pub file_bytes: u64,
    /// Blocks of attention and feed-forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// How many logits a step gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocab_size: Option<usize>,
    /// Length of the embeddings. But for models with layers after their pooling it is that of a token's vector between layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_length: Option<usize>,
    /// The files have a head for multi-token prediction, which the option `multiTokenPrediction` loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_token_prediction: Option<bool>,
    /// Tokens that the model was trained for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_context_length: Option<usize>,
    /// Tokens of the context that `load` would use, by the option or its default. `kv_cache_bytes` is for these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_length: Option<usize>,
    /// Bytes of the weights on the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_bytes: Option<u64>,
    /// Bytes of the table of per-layer embeddings on the GPU, which `perLayerEmbeddings: 'disk'` leaves in the files; 0 without one. `weight_bytes` is by the
    /// option: with the table, or with the rows of it that stay in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_layer_embedding_bytes: Option<u64>,
    /// Bytes of the KV cache on the GPU, for `maxSequences` requests; 0 for an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_bytes: Option<u64>,
    /// Bytes of it that a token takes, in all layers; 0 for an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_bytes_per_token: Option<u64>,
    /// The most bytes that copies of recurrent states take besides, once answers run (`stats().memory.recurrent_checkpoints`): up to eight for each of
    /// `maxSequences` requests, fewer where they are large; 0 for models without such layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrent_checkpoint_bytes: Option<u64>,
    /// The adapter that a load would use, and its limits. Missing without WebGPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterLimits>,
    /// The error that loading it here would end in. Without it, nothing known beforehand speaks against loading; WebGPU doesn't tell how
    /// much memory a GPU has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// What loading it would warn of (`info.warnings`).
    pub warnings: Vec<Warning>,
}

/// An adapter, and the largest sizes on it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct AdapterLimits {
    /// What WebGPU says of the adapter.
    #[serde(flatten)]
    pub info: AdapterInfo,
    /// The largest buffer, in bytes.
    pub max_buffer_bytes: u64,
    /// The largest part of a buffer that a kernel can read, in bytes.
    pub max_binding_bytes: u64,
}

/// The error that loading would end in.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Problem {
    /// Stable, for programs.
    #[cfg_attr(test, ts(type = "ErrorCode"))]
    pub code: &'static str,
    /// For people; it may change.
    pub message: String,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self { code: error.code().as_str(), message: error.message().to_owned() }
    }
}

/// Reads the headers of a model: `file` of a folder, or the only model in it. Files that can't be read or are broken are errors; a sound
/// model that is not supported gives a `problem`.
pub async fn inspect(folder: &dyn Folder, file: Option<&str>, options: &LoadOptions) -> Result<Inspection> {
    let checkpoint = Checkpoint::open(folder, file).await.map_err(|error| about(&folder.name(), error))?;
    let mut tensor_types: BTreeMap<&'static str, u64> = BTreeMap::new();
    for tensor in checkpoint.tensors.iter().filter(|tensor| tensor.bytes() > 0) {
        *tensor_types.entry(tensor.type_name()).or_default() += tensor.bytes();
    }
    let most = tensor_types.iter().max_by_key(|(_, bytes)| **bytes);
    let mut found = Inspection {
        name: checkpoint.metadata.optional_str("general.name")?.map(str::to_owned),
        format: match checkpoint.origin {
            Origin::Gguf => "gguf",
            Origin::HuggingFace => "safetensors",
        },
        architecture: checkpoint.metadata.optional_str("general.architecture")?.unwrap_or("unknown").to_owned(),
        parameters: checkpoint.tensors.iter().map(TensorInfo::elements).fold(0, u64::saturating_add),
        quantization: most.map(|(name, _)| (*name).to_owned()).unwrap_or_default(),
        tensor_types,
        files: checkpoint.files.len(),
        file_bytes: checkpoint.file_bytes(),
        layers: None,
        vocab_size: None,
        embedding_length: None,
        multi_token_prediction: None,
        trained_context_length: None,
        context_length: None,
        weight_bytes: None,
        per_layer_embedding_bytes: None,
        kv_cache_bytes: None,
        kv_cache_bytes_per_token: None,
        recurrent_checkpoint_bytes: None,
        adapter: None,
        problem: None,
        warnings: Vec::new(),
    };
    let device = Device::request(&options.device()).await;
    if let Ok(device) = &device {
        let capabilities = device.capabilities();
        found.adapter = Some(AdapterLimits {
            info: device.adapter().clone(),
            max_buffer_bytes: capabilities.max_buffer_size,
            max_binding_bytes: capabilities.max_storage_binding_size,
        });
    }
    let adapter = device.as_ref().ok().map(Device::capabilities);
    let mut known = Known::default();
    let plan = Plan::of(&checkpoint, options, adapter, &mut known);
    found.tell(&known);
    found.problem = match (&plan, &device) {
        (Err(error), _) | (Ok(_), Err(error)) => Some(error.clone().into()),
        (Ok(_), Ok(_)) => None,
    };
    found.warnings = plan.map(|plan| plan.warnings).unwrap_or_default();
    if let Ok(device) = device {
        device.destroy();
    }
    Ok(found)
}

impl Inspection {
    /// Adds what the plan of a load found.
    fn tell(&mut self, known: &Known) {
        let config = known.config.as_ref();
        self.layers = config.map(|config| config.n_layers);
        self.vocab_size = config.map(|config| config.vocab_size);
        self.embedding_length = config.map(Config::embedding_length);
        self.multi_token_prediction = config.map(|config| config.arch.predicts_further && config.further_layers > 0);
        self.trained_context_length = config.map(|config| config.context_length);
        self.context_length = known.capacity;
        self.weight_bytes = known.weight_bytes;
        self.per_layer_embedding_bytes = known.per_layer_embedding_bytes;
        self.kv_cache_bytes = known.kv_cache_bytes;
        self.kv_cache_bytes_per_token = known.kv_cache_bytes_per_token;
        self.recurrent_checkpoint_bytes = known.recurrent_checkpoint_bytes;
    }
}
