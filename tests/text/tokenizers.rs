//! Tokenizers of GGUF files and of tokenizer.json: real vocabularies against implementations that share no code with ours, every
//! step and decoder against the `tokenizers` crate as a whole, and files that are broken.
//!
//! The golden files and how they were made: tests/golden/text/README.md.

mod broken;
mod files;
mod marian;
mod steps;
mod vocabularies;

use crate::support::{real_models, skip};
use rillm::error::Error;
use rillm::text::detokenize::StreamDecoder;
use rillm::text::tokenizer::{Tokenizer, TokenizerFiles};
use serde_json::Value;

/// The tokenizer of a tokenizer.json and of no other file.
fn from_json(json: &Value) -> Result<Tokenizer, Error> {
    let bytes = serde_json::to_vec(json).unwrap();
    Tokenizer::from_files(&TokenizerFiles { tokenizer: &bytes, ..TokenizerFiles::default() })
}

/// What a stream hands out, checked against the text as a whole: all of it in the end, and nothing that changes.
fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut decoder = StreamDecoder::new(tokenizer);
    let mut text = String::new();
    for (n, &id) in ids.iter().enumerate() {
        text.push_str(&decoder.push(tokenizer, id).unwrap());
        let whole = tokenizer.decode(ids).unwrap();
        assert!(whole.starts_with(&text), "after {} of {ids:?}: {text:?} does not begin {whole:?}", n + 1);
    }
    text.push_str(&decoder.finish());
    assert_eq!(text, tokenizer.decode(ids).unwrap(), "{ids:?}");
    text
}
