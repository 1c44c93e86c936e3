//! What a folder's files say of how answers begin: `generation_config.json`, or `config.json` in older folders.

use serde_json::Value;

use crate::error::Result;
use crate::json;
use crate::model::checkpoint::Checkpoint;
use crate::model::config::Config;

const KEY: &str = "forced_bos_token_id";

/// The token with which the answer of an encoder-decoder begins after the start token.
pub(super) fn forced_bos(checkpoint: &Checkpoint<'_>, config: &Config) -> Result<Option<u32>> {
    if config.encoder.is_none() {
        return Ok(None);
    }
    for file in ["generation_config.json", "config.json"] {
        let Some(bytes) = checkpoint.text_files.get(file) else { continue };
        let read: Value = json::from_slice(bytes).map_err(|cause| err!(InvalidFile, "{file}: {cause}"))?;
        let Some(value) = read.get(KEY).filter(|value| !value.is_null()) else { continue };
        return match value.as_u64().and_then(|id| u32::try_from(id).ok()) {
            Some(id) if (id as usize) < config.vocab_size => Ok(Some(id)),
            _ => bail!(InvalidMetadata, "{file} has {KEY}: {value}, wanted a token below {}", config.vocab_size),
        };
    }
    Ok(None)
}
