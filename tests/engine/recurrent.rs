//! A model of each kind of recurrent state, by every way of decoding: each gives what the others give. Going on from a wrong state would give
//! another answer (`tests/golden/README.md`).

use std::path::Path;

use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::{ChatRequest, CompletionRequest};
use rillm::engine::source::MemorySource;
use rillm::engine::{Engine, Generation, LoadOptions};
use rillm::model::{KvFormat, Precision};
use rillm::native::with_grammars;
use serde_json::{Value, json};

use crate::support::engines::load;
use crate::support::errors::check_error;

/// Gated delta nets and attention, dense: its ops are fused, and requests that run at once share steps.
const DENSE: &str = "qwen3_5";
/// With experts, one of them for all tokens: one op at a time.
const WITH_EXPERTS: &str = "qwen3_next";
/// Short convolutions and attention.
const SHORT_CONVOLUTIONS: &str = "lfm2";
/// Mamba-2 with heads and groups, and attention.
const MAMBA2: &str = "granite4";
/// Mamba in all layers: no keys and values at all.
const MAMBA: &str = "mamba";

fn engine(model: &str, max_sequences: usize) -> Engine {
    engine_with(model, max_sequences, KvFormat::F32)
}

pub(super) fn engine_with(model: &str, max_sequences: usize, format: KvFormat) -> Engine {
    engine_by(model, max_sequences, LoadOptions { kv_cache: Some(format), ..Default::default() })
}

fn engine_by(model: &str, max_sequences: usize, options: LoadOptions) -> Engine {
    let options = LoadOptions { max_sequences: Some(max_sequences), precision: Some(Precision::Exact), ..options };
    with_grammars(load(format!("architectures/{model}/model.gguf"), &options))
}

/// The prompt of the golden data, and what transformers appends to it.
fn golden(model: &str) -> (Vec<u32>, Vec<u32>) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/architectures");
    let path = golden.join(model).join("golden.json");
    let answers: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let ids = |key: &str| answers[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    (ids("ids"), ids("greedy"))
}

pub(super) fn request(prompt: &[u32], more: Value) -> Value {
    let mut request = json!({"prompt": prompt, "max_tokens": 32, "temperature": 0, "ignore_eos": true});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

pub(super) fn start(engine: &Engine, request: Value) -> Generation {
    engine.complete(CompletionRequest::parse(request).unwrap()).unwrap()
}

/// The tokens of each choice, and how many of the prompt's were cached.
pub(super) async fn all(mut generation: Generation) -> (Vec<Vec<u32>>, usize) {
    let (mut choices, mut cached) = (vec![], 0);
    while let Some(chunk) = generation.next().await.unwrap() {
        choices.resize(choices.len().max(chunk.index + 1), vec![]);
        choices[chunk.index].extend(chunk.token_ids);
        cached = chunk.usage.map_or(cached, |usage| usage.prompt_tokens_details.cached_tokens);
    }
    (choices, cached)
}

pub(super) fn answer(engine: &Engine, prompt: &[u32], more: Value) -> (Vec<u32>, usize) {
    let (mut choices, cached) = pollster::block_on(all(start(engine, request(prompt, more))));
    assert_eq!(choices.len(), 1);
    (choices.remove(0), cached)
}

fn lookup() -> Value {
    json!({"speculation": {"type": "prompt_lookup"}})
}

fn grammar() -> Value {
    json!({"structured_outputs": {"regex": "[a-z ]{40}"}, "ignore_eos": false})
}

fn both(mut one: Value, other: Value) -> Value {
    one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    one
}

#[test]
fn every_way_of_decoding_gives_the_same() {
    refuses_to_shift(&every_way_gives_the_same(DENSE), "qwen35");
}

#[test]
fn every_way_of_decoding_with_experts_gives_the_same() {
    refuses_to_shift(&every_way_gives_the_same(WITH_EXPERTS), "qwen3next");
}

#[test]
fn every_way_of_decoding_with_short_convolutions_gives_the_same() {
    refuses_to_shift(&every_way_gives_the_same(SHORT_CONVOLUTIONS), "lfm2");
}

#[test]
fn every_way_of_decoding_with_mamba2_gives_the_same() {
    refuses_to_shift(&every_way_gives_the_same(MAMBA2), "granitehybrid");
}

#[test]
fn every_way_of_decoding_with_mamba_gives_the_same() {
    refuses_to_shift(&every_way_gives_the_same(MAMBA), "mamba");
}

fn refuses_to_shift(engine: &Engine, architecture: &str) {
    let asked = request(&[5, 6, 7], json!({"context_shift": true}));
    let refused = engine.complete(CompletionRequest::parse(asked).unwrap());
    check_error(&refused.err().unwrap(), Code::InvalidRequest, &["context_shift", "recurrent layers", architecture]);
}

pub(super) fn every_way_gives_the_same(model: &str) -> Engine {
    every_way_gives_the_same_by(model, &LoadOptions { kv_cache: Some(KvFormat::F32), ..Default::default() })
}

pub(super) fn every_way_gives_the_same_by(model: &str, options: &LoadOptions) -> Engine {
    let engine = engine_by(model, 4, options.clone());
    let (prompt, greedy) = golden(model);
    let plain = |prompt: &[u32]| answer(&engine, prompt, json!({}));

    // Steps that run ahead, whole and from the prompt's checkpoint.
    assert_eq!(plain(&prompt), (greedy.clone(), 0));
    let (again, cached) = plain(&prompt);
    assert_eq!((again, cached > 0), (greedy.clone(), true), "{cached} tokens were cached");
    // Steps ran past the fifth token, and what they did to the states does not count.
    assert_eq!(answer(&engine, &prompt, json!({"max_tokens": 5})).0, greedy[..5]);
    let longer = [&prompt[..], &greedy[..5]].concat();
    assert_eq!(answer(&engine, &longer, json!({"max_tokens": 27})).0, greedy[5..]);

    // Drafts, most of which are wrong.
    assert_eq!(answer(&engine, &prompt, lookup()).0, greedy);
    let repeated = [&prompt[..20], &prompt[..20], &prompt[..20]].concat();
    let of_repeated = plain(&repeated).0;
    assert_eq!(answer(&engine, &repeated, lookup()).0, of_repeated);

    // Choices take over the prompt's states.
    let (choices, _) = pollster::block_on(all(start(&engine, request(&prompt, json!({"n": 3})))));
    assert_eq!(choices, [greedy.clone(), greedy.clone(), greedy.clone()]);

    // A grammar, with masks ahead and with drafts.
    let constrained = answer(&engine, &prompt, grammar()).0;
    assert!(!constrained.is_empty());
    assert_eq!(answer(&engine, &prompt, both(grammar(), lookup())).0, constrained);

    // Four at once.
    let asked = [
        request(&prompt, json!({})),
        request(&repeated, lookup()),
        request(&prompt, grammar()),
        request(&longer, json!({"max_tokens": 27})),
    ];
    let given = pollster::block_on(join_all(asked.into_iter().map(|asked| all(start(&engine, asked)))));
    let given: Vec<_> = given.into_iter().map(|(mut choices, _)| choices.remove(0)).collect();
    assert_eq!(given, [greedy.clone(), of_repeated, constrained, greedy[5..].to_vec()]);

    // An edit goes on from the checkpoint before it, as if in an empty slot.
    let edited = [&prompt[..60], &[7, 77, 201], &prompt[63..]].concat();
    let of_edited = plain(&edited).0;
    assert_eq!(of_edited, answer(&engine_by(model, 1, options.clone()), &edited, json!({})).0);
    assert_ne!(of_edited, greedy);
    assert_eq!(plain(&prompt).0, greedy, "regenerated");
    engine
}

#[test]
fn a_conversation_is_saved_with_its_states() {
    a_conversation_is_saved(DENSE);
}

#[test]
fn a_conversation_without_keys_and_values_is_saved() {
    a_conversation_is_saved(MAMBA);
}

pub(super) fn a_conversation_is_saved(model: &str) {
    what_one_engine_saves_another_restores(&engine(model, 1), &engine(model, 1));
}

pub(super) fn what_one_engine_saves_another_restores(first: &Engine, other: &Engine) {
    let ask = |engine: &Engine| {
        let asked = json!({"messages": [{"role": "user", "content": "what now"}], "max_tokens": 20, "temperature": 0});
        let generation = engine.chat(ChatRequest::parse(asked).unwrap()).unwrap();
        pollster::block_on(all(generation))
    };
    let (wanted, _) = ask(first);
    let mut bytes = Vec::new();
    let mut write = |piece: Vec<u8>| {
        bytes.extend(piece);
        Ok(())
    };
    let conversation = json!({"messages": [{"role": "user", "content": "what now"}]});
    let session = pollster::block_on(first.save_session(&conversation, None, &mut write)).unwrap();
    assert!(session.tokens > 10, "{} tokens", session.tokens);
    let restored = pollster::block_on(other.restore_session(&MemorySource::new(bytes))).unwrap();
    assert_eq!(restored, session);
    let (given, cached) = ask(other);
    assert_eq!((given, cached >= session.tokens), (wanted, true), "{cached} cached tokens");
}
