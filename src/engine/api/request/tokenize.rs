//! Options for turning a text into tokens.

use serde::Deserialize;

/// How a text becomes tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct TokenizeOptions {
    /// Add the tokens that the model wants around a text, such as the begin-of-text token. Default: false.
    #[cfg_attr(test, ts(as = "Option<bool>"))]
    pub add_special: bool,
    /// Read `<|…|>` and the like as the special tokens they name. Default: true.
    #[cfg_attr(test, ts(as = "Option<bool>"))]
    pub parse_special: bool,
}

impl Default for TokenizeOptions {
    fn default() -> Self {
        Self { add_special: false, parse_special: true }
    }
}
