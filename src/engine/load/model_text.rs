//! What turns text into a model's tokens and back: the tokenizer and the chat template, from a GGUF file's metadata or from the files of
//! a Hugging Face folder.

use crate::error::{Error, Result};
use crate::model::checkpoint::{Checkpoint, Origin};
use crate::model::gguf::{Array, Metadata};
use crate::text::chat::{ChatTemplates, DEFAULT_TEMPLATE_NAME, TemplateFiles};
use crate::text::tokenizer::{MarianFiles, Tokenizer, TokenizerFiles, Vocabulary};

pub(super) struct ModelText {
    /// Of the model's own vocabulary.
    pub tokenizer: Tokenizer,
    /// None, one, or several by name.
    pub chat_templates: ChatTemplates,
}

impl ModelText {
    /// A folder without `tokenizer.json` is `unsupported_tokenizer`, a GGUF file without a tokenizer `invalid_metadata`.
    pub fn of(checkpoint: &Checkpoint<'_>) -> Result<Self> {
        match checkpoint.origin {
            Origin::Gguf => Ok(Self {
                tokenizer: Tokenizer::new(vocabulary(&checkpoint.metadata)?)?,
                chat_templates: chat_templates(&checkpoint.metadata)?,
            }),
            Origin::HuggingFace => {
                let file = |name: &str| checkpoint.text_files.get(name).map(Vec::as_slice);
                let tokenizer_config = file("tokenizer_config.json");
                let special_tokens_map = file("special_tokens_map.json");
                let generation_config = file("generation_config.json");
                let config = file("config.json");
                let tokenizer = match (file("tokenizer.json"), file("source.spm"), file("vocab.json")) {
                    (Some(tokenizer), ..) => Tokenizer::from_files(&TokenizerFiles {
                        tokenizer,
                        tokenizer_config,
                        special_tokens_map,
                        generation_config,
                        config,
                    })?,
                    (None, Some(source), Some(vocabulary)) => Tokenizer::from_marian(&MarianFiles {
                        source,
                        vocabulary,
                        tokenizer_config,
                        special_tokens_map,
                        generation_config,
                        config,
                    })?,
                    _ => bail!(
                        UnsupportedTokenizer,
                        "there is no tokenizer.json beside the model, nor source.spm and vocab.json, as Marian's \
                         folders have; use a folder with one"
                    ),
                };
                let templates = TemplateFiles {
                    tokenizer_config: file("tokenizer_config.json"),
                    chat_template_jinja: file("chat_template.jinja"),
                    chat_template_json: file("chat_template.json"),
                };
                Ok(Self { tokenizer, chat_templates: ChatTemplates::from_files(&templates)? })
            }
        }
    }
}

/// The templates in a GGUF file's metadata: the default one, and others by name.
fn chat_templates(metadata: &Metadata) -> Result<ChatTemplates> {
    let mut templates = ChatTemplates::default();
    if let Some(default) = metadata.optional_str("tokenizer.chat_template")? {
        templates.insert(DEFAULT_TEMPLATE_NAME, default);
    }
    for name in metadata.optional_strings("tokenizer.chat_templates")?.unwrap_or_default() {
        if let Some(template) = metadata.optional_str(&format!("tokenizer.chat_template.{name}"))? {
            templates.insert(name, template);
        }
    }
    Ok(templates)
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
    // Before what belongs to the tokens is copied.
    let tokens = metadata.optional_array(&key("tokens"))?.map_or(0, Array::len);
    for name in ["token_type", "scores"] {
        let count = metadata.optional_array(&key(name))?.map_or(0, Array::len);
        if count > tokens {
            bail!(UnsupportedTokenizer, "{} has {count} elements for {tokens} tokens, wanted one for each", key(name));
        }
    }
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
        // The key was misspelt in the format's first years; some files have it right.
        sep: match metadata.optional_u32(&key("seperator_token_id"))? {
            Some(id) => Some(id),
            None => metadata.optional_u32(&key("separator_token_id"))?,
        },
        ends: [metadata.optional_u32(&key("eot_token_id"))?, metadata.optional_u32(&key("eom_token_id"))?]
            .into_iter()
            .flatten()
            .collect(),
        charsmap: match metadata.optional_array(&key("precompiled_charsmap"))? {
            None => Vec::new(),
            Some(Array::U8(bytes)) => bytes.clone(),
            Some(Array::I8(bytes)) => bytes.iter().map(|&byte| byte as u8).collect(),
            Some(_) => bail!(InvalidMetadata, "tokenizer.ggml.precompiled_charsmap is no array of bytes"),
        },
        remove_extra_whitespaces: metadata.optional_bool(&key("remove_extra_whitespaces"))?,
        lowercase: metadata.optional_bool(&key("normalizer.lowercase"))?,
        strip_accents: metadata.optional_bool(&key("normalizer.strip_accents"))?,
        add_sep: metadata.optional_bool(&key("add_sep_token"))?,
        add_bos: metadata.optional_bool(&key("add_bos_token"))?,
        add_eos: metadata.optional_bool(&key("add_eos_token"))?,
        add_space_prefix: metadata.optional_bool(&key("add_space_prefix"))?,
    })
}
