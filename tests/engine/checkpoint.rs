//! Models as they lie in files: Hugging Face folders with safetensors and config.json, sound ones and broken ones.

mod config_json;
mod damage;
mod folders;
mod inspect;
mod logits;
mod safetensors;
mod split;
mod writer;

use rillm::error::{Code, Error};

#[track_caller]
fn check_error(error: &Error, code: Code, words: &[&str]) {
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{word:?} is not in {:?}", error.message());
    }
}
