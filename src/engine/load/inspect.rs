//! What a model is, and what running it would take, from its headers alone.

use std::collections::BTreeMap;

use serde::Serialize;

use super::about;
use super::options::{LoadOptions, capacity, layout};
use crate::error::{Error, Result};
use crate::model::checkpoint::{Checkpoint, Origin, TensorInfo};
use crate::model::config::Config;
use crate::model::folder::Folder;
use crate::model::{KvCache, KvFormat};
use crate::tensor::{AdapterInfo, Capabilities, Device};

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
    /// The type that most of the bytes have: `Q4_K`, `BF16`.
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
    /// Length of a token's vector between layers, and of the embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_length: Option<usize>,
    /// Tokens that the model was trained for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_context_length: Option<usize>,
    /// Tokens of the context that `load` would use, by the option or its default. `kv_cache_bytes` is for these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_length: Option<usize>,
    /// Bytes of the weights on the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_bytes: Option<u64>,
    /// Bytes of the KV cache on the GPU, for `maxSequences` requests; 0 for an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_bytes: Option<u64>,
    /// The adapter that a load would use, and its limits. Missing without WebGPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterLimits>,
    /// The error that loading it here would end in. Without it, nothing known beforehand speaks against loading; WebGPU doesn't tell how
    /// much memory a GPU has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
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
        *tensor_types.entry(tensor.ty.name()).or_default() += tensor.bytes();
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
        trained_context_length: None,
        context_length: None,
        weight_bytes: None,
        kv_cache_bytes: None,
        adapter: None,
        problem: None,
    };
    let device = Device::request(&options.device()).await;
    let mut software = false;
    if let Ok(device) = &device {
        let capabilities = device.capabilities();
        software = capabilities.software;
        found.adapter = Some(AdapterLimits {
            info: device.adapter().clone(),
            max_buffer_bytes: capabilities.max_buffer_size,
            max_binding_bytes: capabilities.max_storage_binding_size,
        });
        device.destroy();
    }
    let capabilities = device.as_ref().ok().map(|device| device.capabilities().clone());
    let kv_format = options.kv_format_on(software);
    let needs = found.fill(&checkpoint, options, kv_format, capabilities.as_ref());
    found.problem = match (needs, device) {
        (Err(error), _) | (Ok(()), Err(error)) => Some(error.into()),
        (Ok(()), Ok(_)) => None,
    };
    Ok(found)
}

impl Inspection {
    /// Adds what the configuration says. An error is what loading would end in.
    fn fill(
        &mut self,
        checkpoint: &Checkpoint<'_>,
        options: &LoadOptions,
        kv_format: KvFormat,
        capabilities: Option<&Capabilities>,
    ) -> Result<()> {
        let config = Config::of(checkpoint)?;
        self.layers = Some(config.n_layers);
        self.vocab_size = Some(config.vocab_size);
        self.embedding_length = Some(config.n_embd);
        self.trained_context_length = Some(config.context_length);
        let needs = layout(options)?.needs(checkpoint, &config, capabilities)?;
        self.weight_bytes = Some(needs.bytes);
        let capacity = capacity(options.context_length, &config)?;
        self.context_length = Some(capacity);
        let (kv_bytes, kv_binding) = if config.arch.is_encoder {
            (0, 0)
        } else {
            KvCache::needs(&config, capacity, options.max_sequences.unwrap_or(1).max(1), kv_format)
        };
        self.kv_cache_bytes = Some(kv_bytes);
        let Some(adapter) = &self.adapter else { return Ok(()) };
        for (what, binding, buffer) in [
            (&*needs.largest, needs.largest_binding, needs.largest_buffer),
            ("the KV cache of a layer", kv_binding, kv_binding),
        ] {
            if binding > adapter.max_binding_bytes || buffer > adapter.max_buffer_bytes {
                bail!(
                    AdapterLimits,
                    "{what} takes {binding} bytes in one binding and {buffer} in one buffer, and this adapter allows {} and {}",
                    adapter.max_binding_bytes,
                    adapter.max_buffer_bytes
                );
            }
        }
        Ok(())
    }
}
