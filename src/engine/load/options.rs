//! The options of a load, and what follows from them.

use serde::{Deserialize, Serialize};

use crate::decode::PressureListener;
use crate::error::Result;
use crate::model::config::Config;
use crate::model::{KvFormat, Layout, Precision};
use crate::tensor::quant::{Format, quantize::TARGETS};
use crate::tensor::{Capabilities, DeviceKind, DeviceOptions, PowerPreference};

/// The default context of models that allow more: the KV cache has to fit beside the weights.
const DEFAULT_CONTEXT_LENGTH: usize = 4096;

/// When variants of kernels are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum Autotune {
    /// On GPUs. On software adapters it would take longer than it gains.
    #[default]
    Auto,
    /// On every adapter.
    Always,
    /// Never: the defaults run, which follow from the adapter's features.
    Off,
}

/// What counts for more while the model works: the frames of pages, or speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum Smoothness {
    /// The GPU is given a few milliseconds of work at a time.
    Frames,
    /// The GPU is given as much as makes it fastest.
    Throughput,
}

/// Where the table of per-layer embeddings is, while a model is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum PerLayerEmbeddings {
    /// In the memory of the device that runs the model.
    #[default]
    Device,
    /// In the model's files.
    Disk,
}

impl PerLayerEmbeddings {
    /// Refuses a draft model beside a table on disk.
    pub fn check_draft(self) -> Result<()> {
        if self == Self::Disk {
            bail!(
                InvalidRequest,
                "perLayerEmbeddings is \"disk\", so that a pass takes in no token that was not read back, as those of a draft model are; leave draft out, or \
                 load with \"device\""
            );
        }
        Ok(())
    }
}

/// Why a model runs on the device that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum DeviceReason {
    /// The option `device` names it.
    Requested,
    /// There is a GPU.
    GpuAvailable,
    /// The browser has no WebGPU.
    NoWebgpu,
    /// WebGPU gives no adapter.
    NoAdapter,
    /// WebGPU's only adapter is software.
    SoftwareAdapter,
    /// The model is too large for the GPU's limits.
    AdapterLimits,
    /// The GPU's device was lost more than once.
    DeviceLost,
}

// TypeScript's types are made from it (`api/typescript.rs`), so its comments are written for callers.
/// How a model is loaded.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoadOptions {
    /// Quantise matrices of plain numbers (F32, F16, BF16) on the GPU while loading: to about 8.5 bits a weight (`q8_0`), 6.6 (`q6_k`) or 4.5
    /// (`q4_k`, `iq4_nl`, `q4_0`, the most exact first). Of four bits the matrix that gives the logits becomes Q6_K, or Q8_0 with `q4_0`. Rows
    /// that are no multiple of 256 become IQ4_NL in place of Q4_K, and Q8_0 in place of Q6_K. Weights that are already quantised stay as they
    /// are.
    #[cfg_attr(test, ts(type = "'q8_0' | 'q4_0' | 'q4_k' | 'q6_k' | 'iq4_nl' | null"))]
    pub quantize: Option<String>,
    /// Length of the context in tokens. Default: 4096, or what the model was trained for if that is less; where the GPU has no room for it
    /// beside the weights, half of it, and so on down to 512, with a warning. A length that is named is never shortened. For an encoder, what
    /// it was trained for.
    pub context_length: Option<usize>,
    /// Length of text, in tokens, for which ropes that depend on it (longrope, dynamic NTK) are made. Default: `contextLength`, so that a text
    /// may fill the whole context: a cache can't change from the frequencies of short texts to those of long ones on the way. With the
    /// model's context before it was stretched (4096 for Phi-3.5) short chats in a long context are as exact as transformers answers them,
    /// and texts beyond that length lose quality. Other ropes ignore it.
    pub rope_context_length: Option<usize>,
    /// Load the head that predicts the token after the next one (multi-token prediction of Qwen3.5 and Qwen3-Next), so that requests with
    /// `speculation: {type: 'mtp'}` draft with it. Every token then writes its keys and values besides, a few dispatches more. `inspect` tells
    /// whether files have such a head; without one the load rejects with `invalid_request`. Default: false.
    #[cfg_attr(test, ts(as = "Option<bool>"))]
    pub multi_token_prediction: bool,
    /// Where the table of per-layer embeddings (Gemma 3n, Gemma 4 E2B and E4B) is. `device`: in memory with the other weights. `disk`: it stays in the model's files,
    /// which are in the cache or are Files, and of each token a few kilobytes are read when it comes; up to 64 MiB of rows that were read last stay in
    /// memory. That saves a third to a half of such a model's memory (`inspect` tells `per_layer_embedding_bytes`), and each token then waits for the one before to be
    /// read back and for its row. With files that are not on this device, with `draft`, or of a model without such embeddings, the load rejects with
    /// `invalid_request`. Default: `device`.
    #[cfg_attr(test, ts(as = "Option<PerLayerEmbeddings>"))]
    pub per_layer_embeddings: PerLayerEmbeddings,
    /// How many requests run at the same time, 1 to 8; more wait for their turn. They decode together, so one read of the weights serves
    /// all. Each has a KV cache of its own (`info.kv_cache_bytes` is the sum). Default: 1.
    pub max_sequences: Option<usize>,
    /// A chat template in Jinja, in place of the model's own.
    pub chat_template: Option<String>,
    /// For a language model that ranks documents by the logits of two tokens, where its files don't say so: the token that speaks against a
    /// document, then the one for it. A plain folder of Qwen3-Reranker takes `["no", "yes"]`. As in vLLM.
    pub classifier_from_token: Option<Vec<String>>,
    /// How exact activations are. `fast` takes in prompts with 8-bit activations (one scale for every 32) if the weights are quantised too; on
    /// the CPU it decodes with them as well, and packs weights for it, which takes up to half more memory. `exact` keeps 32-bit floats
    /// everywhere. Default: `fast`, and `exact` on a software adapter, where 8 bits gain nothing.
    pub precision: Option<Precision>,
    /// How the KV cache stores keys and values. `f16` takes half the memory of `f32`. `q8_0` takes 0.53 of the memory of `f16`: 8-bit
    /// integers with a scale for every 32 of a head (heads are padded to a multiple of 32). Default: `f16`, and `f32` with the precision
    /// `exact`.
    pub kv_cache: Option<KvFormat>,
    /// Bytes of GPU memory for texts that no request runs on any more: several conversations, their edits and branches. A later prompt that
    /// begins like one of them takes in only what is new (`cached_tokens`, and `prompt_cache` of `stats()`). What was used longest ago goes
    /// first; 0 keeps none. Memory is taken as it is needed. Default: what the KV cache of one request takes.
    pub prompt_cache_bytes: Option<u64>,
    /// Whether kernels are tuned to the GPU while loading: variants are compared on the model's own shapes, and the browser keeps the
    /// results (per GPU, shape and version) for later loads. `auto`: on GPUs only, for up to a second of a model's first load (and of the
    /// next, if that was not enough). `always`: also on software adapters, where it gains little. `off`: never. Default: `auto`.
    #[cfg_attr(test, ts(as = "Option<Autotune>"))]
    pub autotune: Autotune,
    /// What counts for more while the model loads and works. `frames`: pages that draw stay smooth, since the GPU is given a few milliseconds
    /// of work at a time, measured on this GPU. `throughput`: it is given as much as makes it fastest, and a page may stand still for as long
    /// as a part of a prompt takes. While the page is hidden, all is `throughput`. Default: `frames` on a GPU, `throughput` on a software
    /// adapter, whose work keeps no frame waiting. `engine.setSmoothness()` changes it.
    pub smoothness: Option<Smoothness>,
    /// Which GPU to prefer in a machine with two. Default: `high-performance`.
    pub power_preference: Option<PowerPreference>,
    /// What runs the model: `gpu`, `cpu`, or `auto`, which is the GPU where there is one, and the CPU where there is none, where the browser
    /// gives no adapter and where its adapter is software. `info.device` tells which it became and why. Default: `auto`.
    #[serde(rename = "device")]
    #[cfg_attr(test, ts(as = "Option<DeviceKind>"))]
    pub device_kind: DeviceKind,
    /// On the CPU, how many threads compute, 1 to 32. Several need a page that is cross-origin isolated (headers
    /// `Cross-Origin-Opener-Policy: same-origin` and `Cross-Origin-Embedder-Policy: require-corp` or `credentialless`), or a server; elsewhere
    /// it is one, with a warning if more were asked for. `info.threads` tells what it became. Default: the number of cores minus one, at most 8.
    pub threads: Option<usize>,
    /// Why it is this device, for `ModelInfo`.
    #[cfg_attr(test, ts(skip))]
    pub device_reason: Option<DeviceReason>,
    /// Ask for the browser's software adapter, which is a GPU to `device`. Slow; for tests. Default: false.
    #[cfg_attr(test, ts(as = "Option<bool>"))]
    pub force_fallback_adapter: bool,
    /// What [`Engine::tunings`](crate::engine::Engine::tunings) of an earlier load gave. Anything else is ignored.
    #[serde(skip)]
    pub tunings: Option<String>,
    /// Local time minus UTC, for templates that ask for the date.
    #[serde(skip)]
    pub utc_offset_seconds: i64,
    /// Run every step of a layer as an op of its own, to compare with the fused ops.
    #[serde(skip)]
    pub unfused_ops: bool,
    /// How many rows of per-layer embeddings that stay on disk are in memory; `None` for as many as take 64 MiB.
    #[serde(skip)]
    pub per_layer_cache_rows: Option<usize>,
    /// Told when the GPU's memory runs short, while loading or later.
    #[serde(skip)]
    pub on_memory_pressure: PressureListener,
    /// Further options of the device. `device_kind`, `power_preference` and `force_fallback_adapter` above are stronger.
    #[serde(skip)]
    pub device: DeviceOptions,
}

impl LoadOptions {
    /// What the device is asked for.
    pub(super) fn device(&self) -> DeviceOptions {
        DeviceOptions {
            packs_weights: self.device.packs_weights || self.precision != Some(Precision::Exact),
            kind: if self.device_kind == DeviceKind::Auto { self.device.kind } else { self.device_kind },
            power_preference: self.power_preference.unwrap_or(self.device.power_preference),
            force_fallback_adapter: self.force_fallback_adapter || self.device.force_fallback_adapter,
            ..self.device.clone()
        }
    }

    /// Whether submits are cut, on an adapter.
    pub(super) fn is_paced_on(&self, software: bool) -> bool {
        match self.smoothness {
            Some(smoothness) => smoothness == Smoothness::Frames,
            None => !software,
        }
    }

    /// The precision on an adapter, or on any.
    pub(super) fn precision_on(&self, adapter: Option<&Capabilities>) -> Precision {
        let gains_nothing = adapter.is_some_and(|adapter| adapter.software && !adapter.cpu);
        self.precision.unwrap_or(if gains_nothing { Precision::Exact } else { Precision::Fast })
    }

    pub(super) fn kv_format_on(&self, adapter: Option<&Capabilities>) -> KvFormat {
        self.kv_cache.unwrap_or(match self.precision_on(adapter) {
            Precision::Exact => KvFormat::F32,
            Precision::Fast => KvFormat::F16,
        })
    }
}

/// How the options want the weights.
pub(super) fn layout(options: &LoadOptions) -> Result<Layout> {
    let quantize = match &options.quantize {
        None => None,
        Some(name) => match Format::by_name(name).filter(|_| TARGETS.contains(&name.as_str())) {
            Some(format) => Some(format),
            None => bail!(InvalidRequest, "quantize is {name:?}, wanted {}", TARGETS.join(" or ")),
        },
    };
    Ok(Layout { join: !options.unfused_ops, quantize })
}

/// The length of text for which ropes are made, if the caller says it.
pub(super) fn rope_context(asked: Option<usize>, config: &Config) -> Result<Option<usize>> {
    let trained = config.context_length;
    match asked {
        Some(asked) if asked == 0 || asked > trained => {
            bail!(
                InvalidRequest,
                "ropeContextLength is {asked}, wanted 1 to {trained}, which the model was trained for"
            )
        }
        asked => Ok(asked),
    }
}

/// The length of the context in tokens.
pub(super) fn capacity(asked: Option<usize>, config: &Config) -> Result<usize> {
    let trained = config.context_length;
    // An encoder keeps nothing of a text, so a long context costs nothing.
    let default = if config.arch.is_encoder { trained } else { DEFAULT_CONTEXT_LENGTH };
    match asked {
        None => Ok(trained.min(default)),
        Some(asked) if asked == 0 || asked > trained => {
            bail!(InvalidRequest, "contextLength is {asked}, wanted 1 to {trained}, which the model was trained for")
        }
        Some(asked) => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_read_by_their_names_in_javascript() {
        let read = |options| serde_json::from_value::<LoadOptions>(options);
        let options = read(json!({
            "quantize": "q8_0", "contextLength": 64, "ropeContextLength": 32, "multiTokenPrediction": true, "maxSequences": 2, "chatTemplate": "{{ a }}", "precision": "exact",
            "kvCache": "q8_0", "promptCacheBytes": 5_000_000_000_u64, "autotune": "off", "smoothness": "throughput", "powerPreference": "low-power", "forceFallbackAdapter": true,
        }))
        .unwrap();
        assert_eq!((options.context_length, options.max_sequences), (Some(64), Some(2)));
        assert_eq!((options.rope_context_length, options.multi_token_prediction), (Some(32), true));
        assert_eq!((options.quantize.as_deref(), options.chat_template.as_deref()), (Some("q8_0"), Some("{{ a }}")));
        assert_eq!((options.precision, options.kv_cache), (Some(Precision::Exact), Some(KvFormat::Q8_0)));
        assert_eq!((options.autotune, options.prompt_cache_bytes), (Autotune::Off, Some(5_000_000_000)));
        assert!(!options.is_paced_on(false) && LoadOptions::default().is_paced_on(false));
        assert!(!LoadOptions::default().is_paced_on(true));
        assert!(read(json!({"smoothness": "frames"})).unwrap().is_paced_on(true), "an explicit wish is obeyed");
        let device = options.device();
        assert_eq!((device.power_preference, device.force_fallback_adapter), (PowerPreference::LowPower, true));
        let device = read(json!({})).unwrap().device();
        assert_eq!((device.power_preference, device.force_fallback_adapter), (PowerPreference::HighPerformance, false));
        for unknown in [json!({"context_length": 64}), json!({"tunings": "…"}), json!({"unfusedOps": true})] {
            assert!(read(unknown).is_err());
        }
    }
}
