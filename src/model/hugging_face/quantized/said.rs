//! What config.json says of quantised weights, and the refusal of what is not read.

use serde_json::Value as Json;

use crate::error::Error;
use crate::model::hugging_face::config_json::shortened;

/// An object of config.json, and its key.
pub(super) struct Said<'c> {
    pub key: &'static str,
    pub how: &'c Json,
}

impl Said<'_> {
    /// The refusal of what is not read exactly.
    pub fn unsupported(&self, why: &str) -> Error {
        let method = self.how.get("quant_method").and_then(Json::as_str).unwrap_or_default();
        let what = if method.is_empty() { shortened(self.how) } else { method.to_owned() };
        err!(
            UnsupportedTensorType,
            "config.json has {}: {what}{why} is not supported; choose the model in F16, BF16 or F32 (the option `quantize` makes it \
             smaller), or a GGUF file of it",
            self.key
        )
    }

    /// A whole number that is not negative.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.how.get(key).and_then(Json::as_u64)
    }

    pub fn is_set(&self, key: &str) -> bool {
        self.how.get(key).and_then(Json::as_bool).unwrap_or(false)
    }

    pub fn text(&self, key: &str) -> Option<String> {
        self.how.get(key).and_then(Json::as_str).map(str::to_lowercase)
    }
}
