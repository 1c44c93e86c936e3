//! What a load is told, and what follows from it.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::config::Config;
use crate::model::{KvFormat, Layout, Precision};
use crate::tensor::DeviceOptions;
use crate::tensor::quant::{Format, quantize::TARGETS};

/// The context of a model that allows more, unless asked for: its KV cache has to fit beside the weights.
const DEFAULT_CONTEXT_LENGTH: usize = 4096;

/// When variants of kernels are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    pub device: DeviceOptions,
    /// Tokens that the KV cache holds; at most what the model was trained for.
    pub context_length: Option<usize>,
    /// How many requests can run at once, 1 (the default) to 8. Each has its own KV cache.
    pub max_sequences: Option<usize>,
    /// What the clock on the wall differs from UTC, for templates that ask for the date.
    pub utc_offset_seconds: i64,
    /// A chat template in place of the model's own, in Jinja.
    pub chat_template: Option<String>,
    /// Without it, fast on a GPU and exact on a software adapter, which gains nothing by 8 bits.
    pub precision: Option<Precision>,
    /// Quantise matrices of plain numbers (F32, F16, BF16) while they are loaded: `q8_0` or `q4_0`. Others stay as they are.
    pub quantize: Option<String>,
    /// How keys and values are stored. Without it f16, and f32 where the precision is exact.
    pub kv_cache: Option<KvFormat>,
    /// Run one op at a time, to compare with the ops that join several.
    pub plain_ops: bool,
    /// Whether variants of kernels are compared on this adapter.
    pub autotune: Autotune,
    /// What [`Engine::tunings`] of an earlier load gave. Anything else is passed over.
    pub tunings: Option<String>,
}

impl LoadOptions {
    /// The precision on an adapter.
    pub(super) fn precision_on(&self, software: bool) -> Precision {
        self.precision.unwrap_or(if software { Precision::Exact } else { Precision::Fast })
    }

    pub(super) fn kv_format_on(&self, software: bool) -> KvFormat {
        self.kv_cache.unwrap_or(match self.precision_on(software) {
            Precision::Exact => KvFormat::F32,
            Precision::Fast => KvFormat::F16,
        })
    }
}

/// What is asked of the weights.
pub(super) fn layout(options: &LoadOptions) -> Result<Layout> {
    let quantize = match &options.quantize {
        None => None,
        Some(name) => match Format::by_name(name).filter(|_| TARGETS.contains(&name.as_str())) {
            Some(format) => Some(format),
            None => bail!(InvalidRequest, "quantize is {name:?}, wanted {}", TARGETS.join(" or ")),
        },
    };
    Ok(Layout { join: !options.plain_ops, quantize })
}

/// Tokens that the model is to hold.
pub(super) fn capacity(asked: Option<usize>, config: &Config) -> Result<usize> {
    let trained = config.context_length;
    // An encoder keeps nothing of a text, so that a long context costs nothing.
    let default = if config.arch.is_encoder { trained } else { DEFAULT_CONTEXT_LENGTH };
    match asked {
        None => Ok(trained.min(default)),
        Some(asked) if asked == 0 || asked > trained => {
            bail!(InvalidRequest, "contextLength is {asked}, wanted 1 to {trained}, which the model was trained for")
        }
        Some(asked) => Ok(asked),
    }
}
