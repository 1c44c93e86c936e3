//! Keys and values in blocks of 8-bit integers.

use rillm::engine::request::CompletionRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{Engine, KvFormat, LoadOptions, folder::OneFile, inspect};
use rillm::tensor::DeviceOptions;
use serde_json::json;

use super::{Loaded, adapter, exact, file_of, golden, load, models, prompt, worst_row};

/// How far q8_0 moves the logits of a tiny random model, at half of the positions and at the worst one (`docs/fidelity.md`).
const MEDIAN: f64 = 3e-2;
const WORST: f64 = 1e-1;

/// A prompt at once, then one token at a time, by both sets of kernels, one with ops joined and one without: near f32.
#[test]
fn logits_stay_near_those_of_f32() {
    let contexts = [
        ("software", adapter::context(true)),
        ("gpu", adapter::context_with(&DeviceOptions { software_kernels: Some(false), ..Default::default() })),
    ];
    let ids = prompt(45);
    for model in models() {
        let exact = Loaded::new(&contexts[0].1, &model, true, KvFormat::F32, 48, None);
        if exact.transformer.config().layers_with_cache().next().is_none() {
            continue;
        }
        let wanted = exact.forward(&ids, 0);
        let columns = wanted.len() / ids.len();
        for ((kernels, context), joined) in contexts.iter().zip([true, false]) {
            let what = format!("{model}, {kernels} kernels, joined {joined}");
            let loaded = Loaded::new(context, &model, joined, KvFormat::Q8_0, 48, None);
            let mut got = loaded.forward(&ids[..34], 0);
            // A draft's pass, and single tokens.
            got.extend(loaded.forward(&ids[34..37], 34));
            for at in 37..ids.len() {
                got.extend(loaded.forward(&ids[at..=at], at));
            }
            let rows = got.chunks_exact(columns).zip(wanted.chunks_exact(columns));
            let mut errors: Vec<f64> = rows.map(|(got, wanted)| worst_row(got, wanted, columns)).collect();
            errors.sort_by(f64::total_cmp);
            let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
            println!("{what}: at half of the positions {median:.1e}, at the worst {worst:.1e}");
            assert!((1e-4..MEDIAN).contains(&median), "{what}: {median:.2e}");
            // Where a router sees other numbers it takes other experts.
            let is_routed = exact.transformer.config().experts.is_some();
            assert!(worst < WORST || is_routed, "{what}: {worst:.2e}");
        }
    }
}

/// The bytes that are told are those that are taken, by a load as by an inspection: 34 for a block of 32.
#[test]
fn bytes_are_those_of_blocks() {
    // Heads of 64, and heads of 16 and of 8 that are filled up.
    let models = [
        (golden().join("../../models/demo/rillm-demo-q4_0.gguf"), 1),
        (file_of("qwen3"), 32 / 16),
        (file_of("olmo2"), 32 / 8),
    ];
    for (file, filled_up) in models {
        for sequences in [1, 3] {
            let bytes = |kv_cache| {
                let options = LoadOptions {
                    kv_cache: Some(kv_cache),
                    context_length: Some(128),
                    max_sequences: Some(sequences),
                    ..exact()
                };
                let engine = load(&file, &options).unwrap();
                assert_eq!(engine.info().kv_cache, kv_cache);
                let source = FileSource::open(&file).unwrap();
                let inspected = pollster::block_on(inspect(&OneFile(&source), None, &options)).unwrap();
                assert_eq!(inspected.kv_cache_bytes, Some(engine.info().kv_cache_bytes));
                engine.info().kv_cache_bytes
            };
            let (quantised, half) = (bytes(KvFormat::Q8_0), bytes(KvFormat::F16));
            assert_eq!(quantised * 64, half * 34 * filled_up, "{} for {sequences}", file.display());
        }
    }
}

fn greedy(engine: &Engine, max_tokens: usize) -> Vec<u32> {
    let request = json!({"prompt": prompt(30), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true});
    let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
    let mut tokens = Vec::new();
    while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
        tokens.extend(chunk.token_ids);
    }
    tokens
}

/// The answer is the same from the cache, and a step is as many dispatches as with other formats.
#[test]
fn an_engine_answers_from_blocks() {
    for model in ["llama3", "gemma2", "qwen3", "phi4_mini"] {
        let [blocks, f32] = [KvFormat::Q8_0, KvFormat::F32]
            .map(|format| load(&file_of(model), &LoadOptions { kv_cache: Some(format), ..exact() }).unwrap());
        let tokens = greedy(&blocks, 24);
        assert_eq!(greedy(&blocks, 24), tokens, "{model}, from the cache");
        let dispatches = |engine: &Engine| {
            let before = engine.stats().dispatches;
            pollster::block_on(engine.forward(&[5])).unwrap();
            engine.stats().dispatches - before
        };
        assert_eq!(dispatches(&blocks), dispatches(&f32), "{model}");
    }
}
