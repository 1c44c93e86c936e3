//! Completions: the model continues a text.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{CompletionLogprobsFields, Fields, GenerationFields, group};
use crate::error::Result;

/// A request to continue a text.
#[derive(Clone, Debug)]
pub struct CompletionRequest {
    /// What the model continues.
    pub completion: CompletionFields,
    /// Off by default.
    pub logprobs: CompletionLogprobsFields,
    /// What chats have as well.
    pub generation: GenerationFields,
}

group! {
    /// What the model continues.
    #[derive(Clone, Debug)]
    pub struct CompletionFields {
        /// A text, or its token ids. What the encoder of an encoder-decoder reads (T5, BART, NLLB, Marian).
        pub prompt: Prompt,
        /// Of an encoder-decoder whose tokenizer writes the language of a text beside it: the language of `prompt`, which has to be a text (NLLB:
        /// `"fra_Latn"`). The text of a token. The name is that of transformers; the default is the language of the model's files, mostly
        /// English. An extension.
        pub src_lang: Option<String>,
        /// Of an encoder-decoder: the token with which the answer begins after the decoder's start, such as that of the language to translate to
        /// (NLLB: `"deu_Latn"`). A text that is one token, or its id. It is not part of the answer. The name is that of transformers; the
        /// default is what the model's files say. An extension.
        pub forced_bos_token_id: Option<ForcedBos>,
    }
}

/// A text, or its token ids.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged)]
pub enum Prompt {
    /// Gets the tokens that the model wants around a text; `<|…|>` and the like are read as special tokens.
    Text(String),
    /// Taken as they are.
    Tokens(Vec<u32>),
}

/// A token, by its text or its id.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(untagged, expecting = "wanted the text of a token, or its id")]
pub enum ForcedBos {
    /// As the vocabulary writes it.
    Text(String),
    /// A number below the size of the vocabulary.
    Id(u32),
}

impl CompletionRequest {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
    pub fn parse(request: Value) -> Result<Self> {
        let mut fields = Fields::of("the completion request", request)?;
        let request = Self::take(&mut fields)?;
        fields.finish()?;
        if request.generation.ending.max_completion_tokens.is_some() {
            bail!(InvalidRequest, "max_completion_tokens is a field of chats; of completions it is max_tokens");
        }
        Ok(request)
    }

    /// The names of all fields.
    pub fn field_names() -> Result<Vec<&'static str>> {
        let mut fields = Fields::of("the completion request", json!({"prompt": ""}))?;
        Self::take(&mut fields)?;
        Ok(fields.names())
    }

    fn take(fields: &mut Fields) -> Result<Self> {
        Ok(Self { completion: fields.group()?, logprobs: fields.group()?, generation: GenerationFields::take(fields)? })
    }
}
