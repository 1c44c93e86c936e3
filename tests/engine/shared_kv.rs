//! Models whose layers differ in the length of heads, share keys and values, and have an embedding for each layer (Gemma 3n and 4): by every way of
//! decoding, and what their caches take. Context shifts are those of every architecture (`kv_cache/context_shift.rs`).

use rillm::Code;
use rillm::engine::{KvFormat, LoadOptions, inspect};
use rillm::model::folder::DirectoryFolder;

use super::recurrent::{a_conversation_is_saved, every_way_gives_the_same};
use crate::support::engines::load;
use crate::support::errors::check_error;

/// Layers that reuse keys and values, and embeddings for each layer.
const SMALL: &str = "gemma4_e";
/// Keys for values.
const DENSE: &str = "gemma4";
/// Several residual streams besides, and one op at a time.
const STREAMS: &str = "gemma3n";

#[test]
fn every_way_of_decoding_gives_the_same() {
    for model in [SMALL, DENSE, STREAMS] {
        every_way_gives_the_same(model);
    }
}

#[test]
fn a_conversation_is_saved_with_layers_of_two_kinds() {
    a_conversation_is_saved(SMALL);
    a_conversation_is_saved(STREAMS);
}

/// Layers that reuse keys and values take no memory for them, and each other layer takes what its heads need. `inspect` knows it.
#[test]
fn only_layers_with_own_keys_and_values_take_memory() {
    // Of the small one two layers with one head of 16 and one with a head of 32 have own ones; of the dense one two layers have two heads of
    // 16, and two have a head of 32; of that with streams three layers have a head of 16.
    for (model, kv_dims) in [(SMALL, 16 + 32 + 16), (DENSE, 2 * 32 + 2 * 32), (STREAMS, 3 * 16)] {
        let options = LoadOptions { context_length: Some(64), kv_cache: Some(KvFormat::F16), ..Default::default() };
        let bytes = 2 * 64 * kv_dims * 2;
        let engine = load(format!("architectures/{model}/model.gguf"), &options);
        assert_eq!(engine.info().kv_cache_bytes, bytes, "{model}");
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/architectures");
        for file in ["model.gguf", "model.safetensors"] {
            let folder = DirectoryFolder::new(golden.join(model));
            let said = pollster::block_on(inspect(&folder, Some(file), &options)).unwrap();
            assert!(said.problem.is_none(), "{model}/{file}: {:?}", said.problem);
            assert_eq!(said.kv_cache_bytes, Some(bytes), "{model}/{file}");
        }
    }
}

/// A hidden state is one vector for each token.
#[test]
fn hidden_states_of_several_streams_are_refused() {
    let engine = load(format!("architectures/{STREAMS}/model.gguf"), &LoadOptions::default());
    pollster::block_on(engine.forward(&[5, 6, 7])).unwrap();
    let error = pollster::block_on(engine.forward_with_hidden_states(&[5, 6, 7], &[1])).err().unwrap();
    check_error(&error, Code::InvalidRequest, &["hidden states", "gemma3n", "streams"]);
}
