//! What comes with a model to turn text into tokens and back: the tokenizer and the chat template, from a GGUF file's metadata or
//! from the files of a Hugging Face folder.

use crate::error::{Error, Result};
use crate::model::checkpoint::{Checkpoint, Origin};
use crate::model::gguf::Metadata;
use crate::text::tokenizer::{Tokenizer, Vocabulary};

pub(super) struct ModelText {
    pub tokenizer: Tokenizer,
    /// The model's own, if it has one.
    pub chat_template: Option<String>,
}

impl ModelText {
    pub fn of(checkpoint: &Checkpoint<'_>) -> Result<Self> {
        match checkpoint.origin {
            Origin::Gguf => Ok(Self {
                tokenizer: Tokenizer::new(vocabulary(&checkpoint.metadata)?)?,
                chat_template: checkpoint.metadata.optional_str("tokenizer.chat_template")?.map(str::to_owned),
            }),
            // The files are `checkpoint.text_files`, by name.
            Origin::HuggingFace => {
                bail!(UnsupportedTokenizer, "tokenizer.json is not read yet; use a GGUF file of the model")
            }
        }
    }
}

/// The vocabulary in a GGUF file's metadata (`tokenizer.ggml.*` of the GGUF specification).
fn vocabulary(metadata: &Metadata) -> Result<Vocabulary> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let text = |name: &str| Ok::<_, Error>(metadata.optional_str(&key(name))?.map(str::to_owned));
    let Some(model) = text("model")? else {
        bail!(InvalidMetadata, "the file has no tokenizer (tokenizer.ggml.model)");
    };
    let strings = |name: &str| match metadata.optional_strings(&key(name))? {
        Some(strings) => Ok::<_, Error>(strings.into_iter().map(str::to_owned).collect()),
        None => Ok(Vec::new()),
    };
    let token_types = match metadata.optional_i32_array(&key("token_type"))? {
        Some(types) => types.to_vec(),
        None => Vec::new(),
    };
    Ok(Vocabulary {
        model,
        pre: text("pre")?,
        tokens: strings("tokens")?,
        scores: metadata.optional_f32_array(&key("scores"))?.map(<[f32]>::to_vec).unwrap_or_default(),
        token_types,
        merges: strings("merges")?,
        bos: metadata.optional_u32(&key("bos_token_id"))?,
        eos: metadata.optional_u32(&key("eos_token_id"))?,
        unk: metadata.optional_u32(&key("unknown_token_id"))?,
        pad: metadata.optional_u32(&key("padding_token_id"))?,
        add_bos: metadata.optional_bool(&key("add_bos_token"))?,
        add_eos: metadata.optional_bool(&key("add_eos_token"))?,
        add_space_prefix: metadata.optional_bool(&key("add_space_prefix"))?,
    })
}
