//! Weights in the memory of several threads: the same answers as without, whatever the weights are, and what follows when memory or a thread fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use pollster::block_on;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{EmbeddingRequest, Engine, EngineTensor, Input, KvFormat, LoadOptions, Phase, Precision, Progress};
use rillm::gpu::Team;
use rillm::tensor::{DeviceKind, DeviceOptions, Rng};
use serde_json::{Value, json};

use crate::support::engines::{load, try_load};
use crate::support::errors::check_error;
use crate::support::files::golden;
use crate::support::team::LocalTeam;

fn options(team: Option<&Arc<LocalTeam>>, precision: Precision) -> LoadOptions {
    let team = team.map(|team| team.clone() as Arc<dyn Team>);
    let device = DeviceOptions { kind: DeviceKind::Cpu, team, ..Default::default() };
    LoadOptions { device_kind: DeviceKind::Cpu, precision: Some(precision), device, ..Default::default() }
}

fn bits(tensor: rillm::Result<EngineTensor>) -> Vec<u32> {
    block_on(tensor.unwrap().readback()).unwrap().into_iter().map(f32::to_bits).collect()
}

fn logits(engine: &Engine) -> Vec<u32> {
    bits(block_on(engine.forward(&[1, 5, 9, 2, 7])))
}

/// Joined and tied weights, of formats that are packed and that are not, experts, and formats that the threads don't know.
const MODELS: [(&str, Option<&str>); 9] = [
    ("tiny_llama/tied-f16.gguf", None),
    ("tiny_llama/tied-q8_0.gguf", None),
    ("tiny_llama/untied-q4_0.gguf", None),
    ("tiny_llama/mixed-q4_k.gguf", None),
    ("tiny_llama/tied-f32.gguf", Some("q8_0")),
    ("tiny_llama/tied-f32.gguf", Some("q4_0")),
    ("architectures/mixtral/model.gguf", None),
    ("architectures/mixtral/model.gguf", Some("q8_0")),
    ("architectures/gemma3n/model.gguf", None),
];

#[test]
fn left_to_itself_the_cpu_rounds_activations() {
    for (name, packed) in [("tiny_llama/tied-q8_0.gguf", true), ("tiny_llama/tied-f32.gguf", false)] {
        let [fast, exact, default] = [Some(Precision::Fast), Some(Precision::Exact), None].map(|precision| {
            let source = FileSource::open(golden(name)).unwrap();
            let options = LoadOptions { device_kind: DeviceKind::Cpu, precision, ..Default::default() };
            block_on(Engine::load(&source, &options, &mut |_| Ok(()))).unwrap()
        });
        let told = |engine: &Engine| {
            let info = engine.info();
            (info.precision, info.weight_bytes, info.kv_cache_bytes)
        };
        assert_eq!(told(&default), told(&fast), "{name}");
        assert_eq!(told(&exact).0, Precision::Exact);
        assert_eq!(told(&exact).2, 2 * told(&default).2, "keys and values are f16 by default");
        assert_eq!(logits(&default), logits(&fast), "{name}");
        assert_eq!(told(&default).1 > told(&exact).1, packed, "{name}: packed weights take more");
    }
}

#[test]
fn logits_are_those_without_threads_bit_for_bit() {
    for (name, quantize) in MODELS {
        for precision in [Precision::Exact, Precision::Fast] {
            let what = format!("{name}, {quantize:?}, {precision:?}");
            let team = Arc::new(LocalTeam::default());
            let quantize = quantize.map(str::to_owned);
            let engine = load(name, &LoadOptions { quantize: quantize.clone(), ..options(Some(&team), precision) });
            let alone = load(name, &LoadOptions { quantize, ..options(None, precision) });
            assert_eq!((engine.info().threads, alone.info().threads), (Some(7), Some(1)));
            assert_eq!(logits(&engine), logits(&alone), "{what}");
            assert_eq!(engine.info().weight_bytes, alone.info().weight_bytes);
            assert!(team.rows.load(Ordering::Relaxed) > 0, "{what}");
            assert!(team.held() as u64 > engine.info().weight_bytes / 2, "{what}: {} bytes", team.held());
            drop(engine);
            assert_eq!(team.held(), 0, "{what}: what is not needed is given back");
        }
    }
}

/// Of a prompt that is long enough for them, and without room for its keys and values.
#[test]
fn attention_of_a_prompt_is_that_without_threads_bit_for_bit() {
    let subjects = [
        (MODELS[1].0, None, 230),
        (MODELS[4].0, Some(KvFormat::Q8_0), 230),
        (MODELS[4].0, Some(KvFormat::F16), 230),
        // With sinks.
        ("architectures/gpt_oss/model.gguf", None, 120),
    ];
    for (name, kv_cache, tokens) in subjects {
        let prompt: Vec<u32> = (0..tokens).map(|at| 3 + at * 7 % 200).collect();
        let all = |engine: &Engine| bits(block_on(engine.forward(&prompt)));
        let options = |team: Option<&Arc<LocalTeam>>| LoadOptions { kv_cache, ..options(team, Precision::Exact) };
        let team = Arc::new(LocalTeam::default());
        let (engine, alone) = (load(name, &options(Some(&team))), load(name, &options(None)));
        let expected = all(&alone);
        assert_eq!(all(&engine), expected, "{name}");
        let attentions = team.attentions.load(Ordering::Relaxed);
        assert!(attentions > 0, "{name}");
        team.has_no_room_for_keys.store(true, Ordering::Relaxed);
        assert_eq!(all(&engine), expected, "{name}, without room");
        assert_eq!(team.attentions.load(Ordering::Relaxed), attentions);
    }
}

/// Threads work in one memory at a time: what takes weights or caches of two is done in steps, or is sent.
#[test]
fn weights_and_caches_in_several_memories_give_the_same() {
    let prompt: Vec<u32> = (0..70).map(|at| 3 + at * 7 % 200).collect();
    let all = |engine: &Engine| bits(block_on(engine.forward(&prompt)));
    let count = |of: &std::sync::atomic::AtomicUsize| of.load(Ordering::Relaxed);
    let mut whole = 0;
    for (name, quantize) in [0, 2, 5, 6, 8].map(|at| MODELS[at]) {
        for precision in [Precision::Exact, Precision::Fast] {
            let quantize = quantize.map(str::to_owned);
            let with = |team: Option<&Arc<LocalTeam>>| {
                load(name, &LoadOptions { quantize: quantize.clone(), ..options(team, precision) })
            };
            let expected = all(&with(None));
            for of_memory in [1, 60_000] {
                let what = format!("{name}, {quantize:?}, {precision:?}, memories of {of_memory} bytes");
                let team = Arc::new(LocalTeam { of_memory, ..Default::default() });
                let engine = with(Some(&team));
                assert_eq!(all(&engine), expected, "{what}");
                assert!(team.memories() > 2 && count(&team.rows) > 0, "{what}: {} memories", team.memories());
                let feed_forwards = count(&team.feed_forwards);
                assert!(of_memory > 1 || feed_forwards == 0, "{what}: {feed_forwards} at once");
                whole += feed_forwards;
                drop(engine);
                assert_eq!(team.held(), 0, "{what}");
            }
        }
    }
    assert!(whole > 0, "none was within one memory");
}

/// The tokens of an answer, and the bits of their log probabilities.
async fn answer(engine: &Engine, request: &Value) -> Vec<(u32, u32)> {
    let mut generation = engine.complete(CompletionRequest::parse(request.clone()).unwrap()).unwrap();
    let mut told = Vec::new();
    while let Some(chunk) = generation.next().await.unwrap() {
        let logprobs = chunk.logprobs.unwrap_or_default();
        let all = logprobs.iter().flat_map(|of| std::iter::once(&of.token).chain(&of.top));
        told.extend(all.map(|token| (token.id, token.logprob.to_bits())));
    }
    told
}

/// Threads keep a copy of caches. Prompts that begin as earlier ones, sequences side by side and contexts that are full change caches in all the
/// ways that there are.
#[test]
fn caches_that_threads_keep_follow_every_change() {
    for (kv_cache, model) in [(KvFormat::F16, 1), (KvFormat::Q8_0, 2)] {
        let options = |team: Option<&Arc<LocalTeam>>| LoadOptions {
            kv_cache: Some(kv_cache),
            max_sequences: Some(3),
            ..options(team, Precision::Exact)
        };
        let team = Arc::new(LocalTeam::default());
        let (engine, alone) = (load(MODELS[model].0, &options(Some(&team))), load(MODELS[model].0, &options(None)));
        let mut rng = Rng(29);
        let mut prompts: Vec<Vec<u32>> = vec![Vec::new()];
        for round in 0..6 {
            let requests: Vec<Value> = (0..1 + rng.below(3))
                .map(|_| {
                    let mut prompt = prompts[rng.below(prompts.len())].clone();
                    prompt.truncate(rng.below(prompt.len() + 1));
                    let most = 235 - prompt.len().min(200);
                    prompt.extend((0..1 + rng.below(most)).map(|_| 3 + rng.below(200) as u32));
                    prompts.push(prompt.clone());
                    let max_tokens = if round % 3 == 2 { 35 } else { 1 + rng.below(12) };
                    json!({ "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true, "logprobs": 2 })
                })
                .collect();
            let [got, wanted] = [&engine, &alone]
                .map(|engine| block_on(join_all(requests.iter().map(|request| answer(engine, request)))));
            for (number, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                let differs = got.iter().zip(wanted).position(|(got, wanted)| got != wanted);
                assert_eq!((differs, got.len()), (None, wanted.len()), "{kv_cache:?}, round {round}, request {number}");
            }
        }
        let places = team.places.load(Ordering::Relaxed);
        assert!(places > 20, "{kv_cache:?}: {places} caches were read where threads keep them");
    }
}

/// A conversation that goes on sends threads its new keys and values, and not the old ones again.
#[test]
fn keys_and_values_are_sent_once() {
    let team = Arc::new(LocalTeam::default());
    let engine = load(MODELS[1].0, &LoadOptions { max_sequences: Some(1), ..options(Some(&team), Precision::Exact) });
    let mut prompt: Vec<u32> = (0..150).map(|at| 3 + at * 7 % 200).collect();
    let ask = |prompt: &[u32]| {
        let count = |of: &std::sync::atomic::AtomicUsize| of.load(Ordering::Relaxed);
        let before = [count(&team.written), count(&team.attended)];
        block_on(answer(&engine, &json!({ "prompt": prompt, "max_tokens": 1, "temperature": 0 })));
        [count(&team.written) - before[0], count(&team.attended) - before[1]]
    };
    let [sent, read] = ask(&prompt);
    assert_eq!(sent, read, "all are new");
    prompt.extend((0..40).map(|at| 5 + at * 11 % 200));
    let [sent, read] = ask(&prompt);
    assert!(sent > 0 && 4 * sent < read, "{sent} bytes were sent of {read} that were read");
}

#[test]
fn vectors_of_an_encoder_are_those_without_threads() {
    let embed = |team: Option<&Arc<LocalTeam>>| {
        let engine = load("encoders/bert/model.gguf", &options(team, Precision::Exact));
        let input = Input::Text("The small boat".to_owned());
        let request = EmbeddingRequest { input, dimensions: None, truncate: false };
        block_on(engine.embed(request)).unwrap().values
    };
    let team = Arc::new(LocalTeam::default());
    assert_eq!(embed(Some(&team)), embed(None));
    assert!(team.rows.load(Ordering::Relaxed) > 0);
}

#[test]
fn weights_that_find_no_room_there_are_out_of_memory() {
    for most in [16, 20_000] {
        let team = Arc::new(LocalTeam { most, ..Default::default() });
        let error = try_load(MODELS[1].0, &options(Some(&team), Precision::Exact)).err().unwrap();
        check_error(&error, Code::OutOfMemory, &[]);
        assert_eq!(team.held(), 0);
    }
}

#[test]
fn a_thread_that_breaks_is_an_error_of_the_step() {
    let team = Arc::new(LocalTeam { breaks_at: 20, ..Default::default() });
    let engine = load(MODELS[1].0, &options(Some(&team), Precision::Exact));
    let first = block_on(async { engine.forward(&[1, 2]).await?.readback().await });
    let mut last = first.map(drop);
    for _ in 0..20 {
        last = block_on(async { engine.forward(&[1, 2]).await?.readback().await }).map(drop);
    }
    check_error(&last.unwrap_err(), Code::GpuValidation, &["the threads of the CPU", "a thread broke"]);
}

/// Memory that runs out while something is computed is told as that, and the engine goes on when there is some again.
#[test]
fn activations_that_find_no_room_are_out_of_memory() {
    let team = Arc::new(LocalTeam::default());
    let engine = load(MODELS[1].0, &options(Some(&team), Precision::Exact));
    let before = logits(&engine);
    team.has_no_room.store(true, Ordering::Relaxed);
    let failed = block_on(async { engine.forward(&[1, 2]).await?.readback().await }).map(drop);
    check_error(&failed.unwrap_err(), Code::OutOfMemory, &["no room"]);
    team.has_no_room.store(false, Ordering::Relaxed);
    assert_eq!(logits(&engine), before);
}

/// Memory that is taken is not given back by WebAssembly, so none is taken for what can't fit.
#[test]
fn weights_above_all_memory_are_refused_before_any_is_read() {
    let device = DeviceOptions { kind: DeviceKind::Cpu, memory_limit: Some(20_000), ..Default::default() };
    let options = LoadOptions { device_kind: DeviceKind::Cpu, device, ..Default::default() };
    let source = FileSource::open(golden(MODELS[1].0)).unwrap();
    let mut phases = Vec::new();
    let mut tell = |progress: Progress| {
        phases.push(progress.phase);
        Ok(())
    };
    let load = block_on(Engine::load(&source, &options, &mut tell));
    check_error(&load.err().unwrap(), Code::OutOfMemory, &["the weights take", "20000 at most"]);
    assert_eq!(phases, [Phase::Header]);
}
