//! Whole models on a native GPU against golden data of an independent implementation (`tests/golden/README.md`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::engines::exact_on_cpu;
use crate::support::{files::golden, soak::is_soak};
use rillm::engine::request::{ChatRequest, CompletionRequest};
use rillm::engine::source::{FileSource, MemorySource};
use rillm::engine::{Engine, FinishReason, KvFormat, LoadOptions, Phase, Precision};
use rillm::{Code, Result};
use serde_json::{Value, json};

fn golden_json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden(name)).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The shape and elements of a float32 array in NumPy's format, version 1.
fn npy(name: &str) -> (Vec<usize>, Vec<f32>) {
    let bytes = std::fs::read(golden(name)).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let text = std::str::from_utf8(&bytes[10..header]).unwrap();
    assert!(text.contains("'<f4'") && text.contains("'fortran_order': False"), "{text}");
    let shape = text.split(['(', ')']).nth(1).unwrap();
    let shape = shape.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    let data = bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    (shape, data)
}

fn load(path: PathBuf, options: &LoadOptions) -> Result<Engine> {
    pollster::block_on(Engine::load(
        &FileSource::open(path)?.with_chunk_bytes(1009),
        &exact_on_cpu(options),
        &mut |_| Ok(()),
    ))
}

/// The precision that golden data is held to.
fn exact() -> LoadOptions {
    LoadOptions { precision: Some(Precision::Exact), ..Default::default() }
}

fn engine(name: &str) -> Engine {
    load(golden(name), &exact()).unwrap()
}

fn generate(engine: &Engine, request: Value) -> Result<(String, Vec<u32>, FinishReason)> {
    let mut generation = engine.complete(CompletionRequest::parse(request)?)?;
    let (mut text, mut tokens, mut reason) = (String::new(), vec![], None);
    while let Some(chunk) = pollster::block_on(generation.next())? {
        assert!(reason.is_none(), "a chunk after the last one");
        text.push_str(&chunk.text);
        tokens.extend(chunk.token_ids);
        reason = chunk.finish_reason;
        assert_eq!(chunk.usage.is_some(), reason.is_some());
    }
    Ok((text, tokens, reason.expect("no finish reason")))
}

/// Largest ‖a − b‖ / ‖b‖ over the rows.
fn worst_row(a: &[f32], b: &[f32], columns: usize) -> f64 {
    assert_eq!(a.len(), b.len());
    let rows = a.chunks_exact(columns).zip(b.chunks_exact(columns));
    rows.map(|(a, b)| {
        let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let norm: f64 = b.iter().map(|b| f64::from(*b).powi(2)).sum();
        (difference / norm).sqrt()
    })
    .fold(0.0, f64::max)
}

/// Every golden model as folder/MODEL and format, and how far its logits may be off.
fn models() -> Vec<(String, String, f64)> {
    let mut models = Vec::new();
    for folder in std::fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        for file in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let Some(name) = file.file_name().unwrap().to_str().unwrap().strip_suffix(".gguf") else { continue };
            let (model, format) = name.split_once('-').unwrap();
            let tolerance = if format == "f32" { 1e-4 } else { 1e-3 };
            models.push((
                format!("{}/{model}", folder.file_name().unwrap().to_str().unwrap()),
                format.to_owned(),
                tolerance,
            ));
        }
    }
    models.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    models
}

#[test]
fn logits_agree_at_every_position() {
    for (model, format, tolerance) in models() {
        let engine = engine(&format!("{model}-{format}.gguf"));
        let prompt = ids(&golden_json(&format!("{model}.ids.json")));
        let (shape, wanted) = npy(&format!("{model}-{format}.logits.npy"));
        let logits = pollster::block_on(engine.forward(&prompt)).unwrap();
        assert_eq!(logits.shape(), shape);
        let got = pollster::block_on(logits.readback()).unwrap();
        let error = worst_row(&got, &wanted, shape[1]);
        println!("{model} {format}: {error:.2e}");
        assert!(error <= tolerance, "{model} {format}: relative error {error:.2e}, wanted {tolerance:.0e}");
    }
}

#[test]
fn greedy_tokens_agree() {
    for (model, format, _) in models() {
        let engine = engine(&format!("{model}-{format}.gguf"));
        let prompt = ids(&golden_json(&format!("{model}.ids.json")));
        let wanted = ids(&golden_json(&format!("{model}.greedy.json"))[format.to_uppercase()]);
        let request = json!({"prompt": prompt, "max_tokens": wanted.len(), "temperature": 0, "ignore_eos": true});
        let (_, tokens, reason) = generate(&engine, request.clone()).unwrap();
        assert_eq!(tokens, wanted, "{model} {format}");
        assert_eq!(reason, FinishReason::Length);
        // Again, now with the prompt in the KV cache.
        let (_, again, _) = generate(&engine, request).unwrap();
        assert_eq!(again, wanted, "{model} {format}, from the cache");
    }
}

/// With keys and values in f16, logits stay near those with f32, after a prompt as in decoding, joined as one op at a time.
#[test]
fn an_f16_cache_is_near_an_f32_one() {
    for (model, format, _) in models() {
        for unfused_ops in [false, true] {
            let engine = |kv_cache| {
                let options = LoadOptions { kv_cache: Some(kv_cache), unfused_ops, ..exact() };
                load(golden(format!("{model}-{format}.gguf")), &options).unwrap()
            };
            let (half, full) = (engine(KvFormat::F16), engine(KvFormat::F32));
            assert_eq!(half.info().kv_cache_bytes * 2, full.info().kv_cache_bytes);
            let prompt: Vec<u32> = (0..70).map(|i| i * 3 % 200).collect();
            let logits = |engine: &Engine| {
                pollster::block_on(async { engine.forward(&prompt).await?.readback().await }).unwrap()
            };
            let wanted = logits(&full);
            let got = logits(&half);
            let error = worst_row(&got, &wanted, wanted.len());
            let worst = worst_row(&got, &wanted, wanted.len() / prompt.len());
            println!("{model} {format}: {error:.2e}, at one position {worst:.2e}");
            assert!((1e-7..3e-3).contains(&error) && worst < 1e-2, "{model} {format}: {error:.2e}, {worst:.2e}");
        }
        // Decoding writes and reads the cache by other kernels.
        prefill_and_decode_agree_for(&model, &format, KvFormat::F16);
    }
}

/// A prompt taken in at once, or in any two parts, gives the logits that one token after the other gives.
#[test]
fn prefill_and_decode_agree() {
    for (model, format) in [("tiny_llama/untied", "q8_0"), ("tiny_qwen2/tied", "q8_0"), ("tiny_llama/mixed", "q4_k")] {
        prefill_and_decode_agree_for(model, format, KvFormat::F32);
    }
}

fn prefill_and_decode_agree_for(model: &str, format: &str, kv_cache: KvFormat) {
    let options = LoadOptions { kv_cache: Some(kv_cache), ..exact() };
    let engine = load(golden(format!("{model}-{format}.gguf")), &options).unwrap();
    // A small difference of f32 may be a whole one of f16.
    let tolerance = if kv_cache == KvFormat::F16 { 1e-3 } else { 1e-5 };
    let prompt = ids(&golden_json(&format!("{model}.ids.json")));
    let all = |ids: &[u32]| pollster::block_on(async { engine.forward(ids).await?.readback().await }).unwrap();
    let wanted = all(&prompt);
    let columns = wanted.len() / prompt.len();
    for length in [1, 2, 3, 17, prompt.len() - 1] {
        let got = all(&prompt[..length]);
        assert!(worst_row(&got, &wanted[..length * columns], columns) < tolerance, "the first {length} tokens");
    }
    // Greedy decoding token by token visits the same states as taking in prompt and answer at once.
    let request = json!({"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    let (_, tokens, _) = generate(&engine, request).unwrap();
    let sequence: Vec<u32> = prompt.iter().chain(&tokens).copied().collect();
    let logits = all(&sequence);
    for (index, token) in tokens.iter().enumerate() {
        let row = &logits[(prompt.len() + index - 1) * columns..][..columns];
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        assert_eq!(best as u32, *token, "token {index} of the answer");
    }
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let engine = engine("tiny_llama/tied-q8_0.gguf");
    for more in
        [json!({}), json!({"top_k": 20}), json!({"top_p": 0.8, "min_p": 0.01}), json!({"top_k": 100, "top_p": 0.9})]
    {
        let tokens = |seed: i64| {
            let mut request = json!({"prompt": [1, 2, 3], "max_tokens": 24, "temperature": 1.5, "seed": seed});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            request["ignore_eos"] = json!(true);
            generate(&engine, request).unwrap().1
        };
        let first = tokens(7);
        assert_eq!(first, tokens(7), "{more}");
        assert_ne!(first, tokens(8), "{more}");
    }
}

/// With few tokens kept, each is the answer's next token for some seed, and no other is.
#[test]
fn truncation_keeps_the_most_probable_tokens() {
    let engine = engine("tiny_qwen2/tied-q8_0.gguf");
    let prompt = [5u32, 6, 7];
    let logits = pollster::block_on(async { engine.forward(&prompt).await?.readback().await }).unwrap();
    let last = &logits[logits.len() / 3 * 2..];
    let mut order: Vec<u32> = (0..last.len() as u32).collect();
    order.sort_by(|a, b| last[*b as usize].total_cmp(&last[*a as usize]));
    let drawn = |more: Value, max_tokens: usize| -> Vec<Vec<u32>> {
        (0..60)
            .map(|seed| {
                let mut request = json!({"prompt": prompt, "max_tokens": max_tokens, "temperature": 2, "seed": seed});
                request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                request["ignore_eos"] = json!(true);
                generate(&engine, request).unwrap().1
            })
            .collect()
    };
    let first = |more: Value| drawn(more, 1).into_iter().map(|tokens| tokens[0]).collect::<BTreeSet<u32>>();
    assert_eq!(first(json!({"top_k": 3})), order[..3].iter().copied().collect());
    // Just more than the first token is worth, at this temperature, so that two reach it.
    let weight = |rank: usize| ((last[order[rank] as usize] - last[order[0] as usize]) / 2.0).exp();
    let share = 1.0 / (0..last.len()).map(weight).sum::<f32>();
    assert_eq!(first(json!({"top_p": share * 1.01})), order[..2].iter().copied().collect());
    let between = (weight(1) + weight(2)) / 2.0;
    assert_eq!(first(json!({"min_p": between})), order[..2].iter().copied().collect());
    // A top_k of 1 is greedy, in every step.
    let greedy = drawn(json!({"temperature": 0}), 12);
    assert_eq!(drawn(json!({"top_k": 1, "top_p": 0.9}), 12), greedy);
    assert_eq!(drawn(json!({"top_p": 1e-6}), 12), greedy);
}

/// Frequencies of the first sampled token against softmax(logits / T).
#[test]
fn sampling_follows_the_distribution() {
    let engine = engine("tiny_llama/tied-f32.gguf");
    let prompt = [5u32, 6, 7];
    let temperature = 1.6f64;
    let logits = pollster::block_on(async { engine.forward(&prompt).await?.readback().await }).unwrap();
    let last = &logits[logits.len() / 3 * 2..];
    let largest = last.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f64> = last.iter().map(|x| (f64::from(x - largest) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();

    let draws = if is_soak() { 4000 } else { 1500 };
    let mut counts = vec![0usize; weights.len()];
    for seed in 0..draws {
        let request =
            json!({"prompt": prompt, "max_tokens": 1, "temperature": temperature, "seed": seed, "ignore_eos": true});
        counts[generate(&engine, request).unwrap().1[0] as usize] += 1;
    }
    // Tokens that are expected at least five times each, and the rest together.
    let (mut chi_square, mut cells, mut rest) = (0.0, 0, (0.0, 0.0));
    for (weight, count) in weights.iter().zip(&counts) {
        let expected = weight / total * draws as f64;
        if expected >= 5.0 {
            chi_square += (*count as f64 - expected).powi(2) / expected;
            cells += 1;
        } else {
            rest = (rest.0 + expected, rest.1 + *count as f64);
        }
    }
    chi_square += (rest.1 - rest.0).powi(2) / rest.0.max(1e-9);
    // Mean of chi-square is its degrees of freedom, its variance twice that: five sigma.
    let limit = f64::from(cells) + 5.0 * (2.0 * f64::from(cells)).sqrt();
    assert!(cells >= 10, "the distribution is too flat or too sharp to say something: {cells} cells");
    assert!(chi_square < limit, "chi-square {chi_square:.1} over {cells} cells, wanted below {limit:.1}");
}

#[test]
fn logits_that_are_no_numbers_are_an_error_however_tokens_are_chosen() {
    let mut bytes = std::fs::read(golden("tiny_llama/tied-f32.gguf")).unwrap();
    // The last weight of the last tensor, which every logit depends on.
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    let source = MemorySource::new(bytes);
    let engine =
        pollster::block_on(Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(()))).unwrap();
    for (temperature, top_p) in [(0.0, 1.0), (1.0, 1.0), (1.0, 0.9)] {
        let request = json!({"prompt": [1, 2, 3], "max_tokens": 3, "temperature": temperature, "top_p": top_p});
        assert_eq!(generate(&engine, request).unwrap_err().code(), Code::NumericalError, "{temperature} {top_p}");
    }
}

#[test]
fn a_generation_ends_where_it_should() {
    let engine = engine("tiny_llama/tied-f32.gguf");
    let prompt = ids(&golden_json("tiny_llama/tied.ids.json"));
    let request = |more: Value| {
        let mut request = json!({"prompt": prompt, "temperature": 0, "max_tokens": 20, "ignore_eos": true});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let (text, tokens, reason) = generate(&engine, request(json!({}))).unwrap();
    assert_eq!((tokens.len(), reason), (20, FinishReason::Length));

    // A stop string from the middle of that text: what comes is what stands before it.
    let stop: String = text.chars().skip(4).take(3).collect();
    let (stopped, _, reason) = generate(&engine, request(json!({"stop": [stop.clone()]}))).unwrap();
    assert_eq!(reason, FinishReason::Stop);
    assert_eq!(stopped, text[..text.find(&stop).unwrap()]);

    // Cancelling ends it with the next chunk, and the engine is free again.
    let mut generation = engine.complete(CompletionRequest::parse(request(json!({}))).unwrap()).unwrap();
    pollster::block_on(generation.next()).unwrap().unwrap();
    let busy = generate(&engine, request(json!({}))).unwrap_err();
    assert_eq!(busy.code(), Code::InvalidRequest);
    generation.cancel();
    let last = pollster::block_on(generation.next()).unwrap().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::Cancelled));
    assert!(pollster::block_on(generation.next()).unwrap().is_none());
    assert_eq!(generate(&engine, request(json!({}))).unwrap().1, tokens);
}

#[test]
fn the_context_is_a_limit_with_a_name() {
    let options = LoadOptions { context_length: Some(16), ..Default::default() };
    let engine = load(golden("tiny_llama/tied-q4_0.gguf"), &options).unwrap();
    let request = |n: usize| json!({"prompt": vec![9; n], "temperature": 0, "ignore_eos": true});
    let (_, tokens, reason) = generate(&engine, request(10)).unwrap();
    assert_eq!((tokens.len(), reason), (6, FinishReason::Length));
    assert_eq!(generate(&engine, request(16)).unwrap_err().code(), Code::ContextLengthExceeded);
    let too_long = LoadOptions { context_length: Some(1 << 20), ..Default::default() };
    assert_eq!(load(golden("tiny_llama/tied-q4_0.gguf"), &too_long).err().unwrap().code(), Code::InvalidRequest);
}

#[test]
fn bad_requests_are_refused_by_name() {
    let engine = engine("tiny_llama/tied-q4_0.gguf");
    let chat = |request: Value| ChatRequest::parse(request).and_then(|request| engine.chat(request)).err().unwrap();
    let hello = json!([{"role": "user", "content": "hello"}]);
    for (request, word) in [
        (json!({"messages": hello, "temprature": 1}), "temprature"),
        (json!({"messages": hello, "temperature": -1}), "temperature"),
        (json!({"messages": hello, "top_k": -1}), "top_k"),
        (json!({"messages": hello, "top_k": 2.5}), "top_k"),
        (json!({"messages": hello, "top_p": 0}), "top_p"),
        (json!({"messages": hello, "top_p": 1.01}), "top_p"),
        (json!({"messages": hello, "min_p": 1}), "min_p"),
        (json!({"messages": hello, "max_tokens": 0}), "max_tokens"),
        (json!({"messages": hello, "max_tokens": 3, "max_completion_tokens": 4}), "max_completion_tokens"),
        (json!({"messages": hello, "stop": [""]}), "stop"),
        (json!({"messages": hello, "stop": ["a", "b", "c", "d", "e"]}), "stop"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "robot", "content": "x"}]}), "role"),
        (json!({"messages": [{"role": "user", "content": 3}]}), "content"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "text"),
    ] {
        let error = chat(request.clone());
        assert_eq!(error.code(), Code::InvalidRequest, "{request}");
        assert!(error.message().contains(word), "{request}: {error}");
    }
    let vocabulary = engine.info().vocab_size;
    let error = generate(&engine, json!({"prompt": [vocabulary]})).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains(&vocabulary.to_string()), "{error}");
    // And it still answers.
    assert_eq!(generate(&engine, json!({"prompt": "a", "max_tokens": 2, "ignore_eos": true})).unwrap().1.len(), 2);
}

#[test]
fn a_warm_step_creates_and_writes_nothing() {
    for kv_cache in [KvFormat::F32, KvFormat::Q8_0] {
        let options = LoadOptions { kv_cache: Some(kv_cache), ..exact() };
        let engine = load(golden("tiny_llama/tied-q4_0.gguf"), &options).unwrap();
        // What a choice takes: from the whole vocabulary, by thresholds, with adjusted logits, and from a band.
        for (settings, choice) in [
            (json!({}), 2),
            (json!({"top_p": 0.9}), 4),
            (json!({"repetition_penalty": 1.1}), 4),
            (json!({"dry_multiplier": 0.8, "logit_bias": {"7": 1}, "top_k": 40}), 7),
            (json!({"top_n_sigma": 1.5}), 3),
            (json!({"top_n_sigma": 2, "dynatemp_range": 0.3, "min_p": 0.1}), 6),
            (json!({"typical_p": 0.9}), 11),
            (json!({"xtc_probability": 0.5}), 8),
            (json!({"mirostat": 2}), 8),
            (json!({}), 2),
        ] {
            warm_steps_create_and_write_nothing(&engine, &settings, choice);
        }
    }
}

fn warm_steps_create_and_write_nothing(engine: &Engine, settings: &Value, choice: u64) {
    let mut request = json!({"prompt": [1, 2, 3], "max_tokens": 250, "ignore_eos": true});
    request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
    for _ in 0..4 {
        pollster::block_on(generation.next()).unwrap();
    }
    engine.reset_stats();
    let before = engine.stats();
    let mut tokens = 0;
    while tokens < 100 {
        tokens += pollster::block_on(generation.next()).unwrap().unwrap().token_ids.len() as u64;
    }
    let stats = engine.stats();
    let per_step = 5 * engine.info().layers as u64 + 2 + choice;
    assert_eq!(stats.dispatches % per_step, 0, "whole steps of {per_step} dispatches");
    let steps = stats.dispatches / per_step;
    assert!(steps.abs_diff(tokens) <= 64, "{steps} steps were submitted while {tokens} tokens were read");
    assert!(stats.submits * 2 <= steps, "{} submits for {steps} steps", stats.submits);
    assert_eq!(stats.passes, stats.submits);
    assert_eq!(stats.encoders, stats.submits);
    assert_eq!(stats.maps, stats.submits);
    assert_eq!(stats.buffers_created, 0);
    assert_eq!(stats.bind_groups_created, 0);
    assert_eq!(stats.pipelines_created, 0);
    assert_eq!(stats.uniform_writes, 0);
    assert_eq!(stats.bytes_uploaded, 0);
    assert_eq!((stats.live_buffers, stats.live_bytes), (before.live_buffers, before.live_bytes));
}

/// Fused ops give what unfused ones give, for one token and for many, at every position of a long answer.
#[test]
fn fused_and_unfused_ops_agree() {
    for (model, format, _) in models() {
        let fused = engine(&format!("{model}-{format}.gguf"));
        let unfused =
            load(golden(format!("{model}-{format}.gguf")), &LoadOptions { unfused_ops: true, ..exact() }).unwrap();
        for prompt in [vec![1], vec![7, 3, 200, 11]] {
            let request = json!({"prompt": prompt, "max_tokens": 48, "temperature": 0, "ignore_eos": true});
            let (_, wanted, _) = generate(&unfused, request.clone()).unwrap();
            let (_, tokens, _) = generate(&fused, request).unwrap();
            assert_eq!(tokens, wanted, "{model} {format} after {prompt:?}");
        }
        for prompt in [vec![5], (0..70).map(|i| i * 3 % 200).collect()] {
            let logits = |engine: &Engine| {
                pollster::block_on(async { engine.forward(&prompt).await?.readback().await }).unwrap()
            };
            let wanted = logits(&unfused);
            assert!(worst_row(&logits(&fused), &wanted, wanted.len() / prompt.len()) < 1e-5, "{model} {format}");
        }
        let per_token = |engine: &Engine| {
            let before = engine.stats().dispatches;
            pollster::block_on(engine.forward(&[5])).unwrap();
            engine.stats().dispatches - before
        };
        let layers = fused.info().layers as u64;
        // Types differ in the model of that name: in the first layer values have one of their own; in the second queries, keys and
        // values, and gate and up, which take four dispatches then.
        let more = if model.ends_with("/mixed") { 1 + 2 + 3 } else { 0 };
        assert_eq!(per_token(&fused), 5 * layers + 2 + more, "{model} {format}");
        assert!(per_token(&unfused) >= 16 * layers, "{model} {format}");
    }
}

/// The precision `fast` differs from `exact` by what 8 bits of the activations leave out, and not by more.
#[test]
fn fast_precision_is_near_exact() {
    for (model, format, _) in models() {
        let name = format!("{model}-{format}.gguf");
        let prompt: Vec<u32> = (0..70).map(|i| i * 3 % 200).collect();
        let logits =
            |engine: Engine| pollster::block_on(async { engine.forward(&prompt).await?.readback().await }).unwrap();
        let wanted = logits(engine(&name));
        let fast =
            LoadOptions { precision: Some(Precision::Fast), kv_cache: Some(KvFormat::F32), ..Default::default() };
        let got = logits(load(golden(&name), &fast).unwrap());
        let error = worst_row(&got, &wanted, wanted.len() / prompt.len());
        println!("{model} {format}: {error:.2e} overall {:.2e}", worst_row(&got, &wanted, wanted.len()));
        let quantised = !matches!(format.as_str(), "f32" | "f16");
        assert!(if quantised { (1e-6..3e-1).contains(&error) } else { error == 0.0 }, "{model} {format}: {error:.2e}");
    }
}

#[test]
fn a_thousand_steps_leave_memory_as_it_was() {
    let engine = engine("tiny_llama/tied-q4_0.gguf");
    let request = json!({"prompt": [1, 2, 3], "max_tokens": 250, "ignore_eos": true, "temperature": 1});
    // The second finds its prompt in the cache and takes another path, and how many buffers wait for the GPU meanwhile is known after some.
    for _ in 0..4 {
        generate(&engine, request.clone()).unwrap();
    }
    pollster::block_on(engine.sync()).unwrap();
    let before = engine.stats();
    for _ in 0..4 {
        assert_eq!(generate(&engine, request.clone()).unwrap().1.len(), 250);
    }
    pollster::block_on(engine.sync()).unwrap();
    let stats = engine.stats();
    assert_eq!((stats.live_buffers, stats.live_bytes), (before.live_buffers, before.live_bytes));
    // How many results are on their way at a time depends on the clock; each takes a buffer of 4 KiB.
    assert!(stats.peak_bytes <= before.peak_bytes + (16 << 10), "{} after {}", stats.peak_bytes, before.peak_bytes);
}

#[test]
fn loading_reports_every_byte() {
    let bytes = std::fs::read(golden("tiny_llama/tied-q8_0.gguf")).unwrap();
    let total = bytes.len() as u64;
    let mut seen = vec![];
    let source = MemorySource::new(bytes).with_chunk_bytes(777);
    let engine = pollster::block_on(Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |progress| {
        seen.push(progress);
        Ok(())
    }))
    .unwrap();
    assert_eq!((seen[0].phase, seen[0].loaded), (Phase::Header, 0));
    assert!(seen.windows(2).all(|pair| pair[0].loaded <= pair[1].loaded));
    assert!(seen[1..].iter().all(|progress| progress.total == total));
    let last = seen.last().unwrap();
    assert_eq!((last.phase, last.loaded), (Phase::Ready, total));
    assert_eq!(engine.info().architecture, "llama");
    assert_eq!(engine.info().quantization, "Q8_0");

    // An error of the callback ends the load, and the next one works.
    let aborted =
        pollster::block_on(Engine::load(
            &source,
            &exact_on_cpu(&LoadOptions::default()),
            &mut |progress| match progress.phase {
                Phase::Weights => Err(rillm::Error::new(Code::Aborted, "enough")),
                _ => Ok(()),
            },
        ));
    assert_eq!(aborted.err().unwrap().code(), Code::Aborted);
    assert!(pollster::block_on(Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(()))).is_ok());
}

#[test]
fn a_disposed_engine_says_so() {
    let engine = engine("tiny_llama/tied-q4_0.gguf");
    engine.dispose();
    assert_eq!(generate(&engine, json!({"prompt": "a"})).unwrap_err().code(), Code::Disposed);
    assert_eq!(pollster::block_on(engine.sync()).unwrap_err().code(), Code::Disposed);
}
