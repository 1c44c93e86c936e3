//! What a folder's files say of the answers of an encoder-decoder: `generation_config.json`, or `config.json` in older folders.

use serde_json::Value;

use crate::error::Result;
use crate::json;
use crate::model::checkpoint::Checkpoint;
use crate::model::config::Config;

/// More words than published models ban (Marian: one).
const MOST_WORDS: usize = 1024;

/// What answers of an encoder-decoder have, if a request does not say otherwise. Other models have nothing of it.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct AnswerDefaults {
    /// The token with which they begin after the start token.
    pub forced_bos: Option<u32>,
    /// Sequences of tokens that don't occur in them.
    pub bad_words: Vec<Vec<u32>>,
}

impl AnswerDefaults {
    pub(super) fn of(checkpoint: &Checkpoint<'_>, config: &Config) -> Result<Self> {
        let mut defaults = Self::default();
        if config.encoder.is_none() {
            return Ok(defaults);
        }
        let token = |value: &Value| {
            value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < config.vocab_size)
        };
        let mut files = Vec::new();
        for file in ["generation_config.json", "config.json"] {
            if let Some(bytes) = checkpoint.text_files.get(file) {
                let read: Value = json::from_slice(bytes).map_err(|cause| err!(InvalidFile, "{file}: {cause}"))?;
                files.push((file, read));
            }
        }
        let named = |key: &'static str| {
            let mut found = files.iter().filter_map(move |(file, read)| Some((*file, read.get(key)?)));
            found.find(|(_, value)| !value.is_null())
        };
        if let Some((file, value)) = named("forced_bos_token_id") {
            defaults.forced_bos = Some(token(value).ok_or_else(|| {
                err!(
                    InvalidMetadata,
                    "{file} has forced_bos_token_id: {value}, wanted a token below {}",
                    config.vocab_size
                )
            })?);
        }
        if let Some((file, value)) = named("bad_words_ids") {
            let word = |value: &Value| {
                let ids: Option<Vec<u32>> = value.as_array()?.iter().map(token).collect();
                ids.filter(|ids| !ids.is_empty())
            };
            let words: Option<Vec<Vec<u32>>> = value.as_array().and_then(|words| words.iter().map(word).collect());
            defaults.bad_words = words.filter(|words| words.len() <= MOST_WORDS).ok_or_else(|| {
                err!(
                    InvalidMetadata,
                    "{file} has bad_words_ids that are no list of at most {MOST_WORDS} lists of tokens below {}",
                    config.vocab_size
                )
            })?;
        }
        Ok(defaults)
    }
}
