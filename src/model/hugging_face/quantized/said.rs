//! What config.json says of quantised weights, and the refusal of what is not read.

use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::model::hugging_face::config_json::{mismatch, shortened};

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

    /// A whole number; none if the key is missing or null.
    pub fn integer(&self, key: &str) -> Result<Option<i64>> {
        self.get(key, Json::as_i64, "a whole number")
    }

    /// True or false; false if the key is missing or null.
    pub fn is_set(&self, key: &str) -> Result<bool> {
        Ok(self.get(key, Json::as_bool, "true or false")?.unwrap_or(false))
    }

    /// A text in lower case.
    pub fn text(&self, key: &str) -> Result<Option<String>> {
        Ok(self.get(key, Json::as_str, "a text")?.map(str::to_lowercase))
    }

    fn get<'j, T>(&'j self, key: &str, read: impl Fn(&'j Json) -> Option<T>, wanted: &str) -> Result<Option<T>> {
        match self.how.get(key).filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| mismatch(&format!("{}.{key}", self.key), value, wanted)),
        }
    }
}
