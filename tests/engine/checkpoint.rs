//! Models as they lie in files: Hugging Face folders with safetensors and config.json, sound ones and broken ones.

mod config_json;
mod damage;
mod folders;
mod hostile;
mod hybrids;
mod inspect;
mod logits;
mod quantized;
mod quantized_damage;
mod refusals;
mod safetensors;
mod split;
mod writer;

use crate::support::errors::check_error;
