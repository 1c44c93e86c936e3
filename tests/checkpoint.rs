//! Models as they lie in files: Hugging Face folders with safetensors and config.json, sound ones and broken ones.
#![cfg(not(target_arch = "wasm32"))]

mod adapter;
#[path = "checkpoint/config_json.rs"]
mod config_json;
#[path = "checkpoint/damage.rs"]
mod damage;
#[path = "checkpoint/folders.rs"]
mod folders;
#[path = "checkpoint/inspect.rs"]
mod inspect;
#[path = "checkpoint/logits.rs"]
mod logits;
#[path = "checkpoint/safetensors.rs"]
mod safetensors;
#[path = "checkpoint/split.rs"]
mod split;
#[path = "checkpoint/writer.rs"]
mod writer;

use rillm::error::{Code, Error};

#[track_caller]
fn check_error(error: &Error, code: Code, words: &[&str]) {
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{word:?} is not in {:?}", error.message());
    }
}
