//! Adapters (LoRA): golden models with them give what transformers and PEFT give, and each request gets its own.

use std::path::Path;

use futures_util::future::{join, join_all, join3};
use rillm::Code;
use rillm::engine::folder::{DirectoryFolder, MemoryFolder, OneFile};
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::{FileSource, MemorySource};
use rillm::engine::{AdapterFormat, AdapterOptions, Chunk, Engine, LoadOptions, LoadedAdapter, Precision};
use rillm::gpu::DeviceKind;
use rillm::{Error, Result};
use serde_json::{Value, json};

use crate::support::errors::check_error;
use crate::support::files::golden;

const CASES: [&str; 9] =
    ["llama", "llama_patterns", "llama_two", "qwen3", "gemma3", "phi3", "gpt2", "bloom", "llama_q4_0"];

/// ‖a − b‖ / ‖b‖ of the worst row.
const TOLERANCE: f64 = 1e-3;

fn exact() -> LoadOptions {
    LoadOptions { precision: Some(Precision::Exact), ..LoadOptions::default() }
}

fn load(file: &str, options: &LoadOptions) -> Engine {
    let path = golden(file);
    let (folder, name) = (path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap());
    let folder = DirectoryFolder::new(folder);
    pollster::block_on(Engine::load_from(&folder, Some(name), options, &mut |_| Ok(()))).unwrap()
}

fn named(name: &str, scale: f32) -> AdapterOptions {
    AdapterOptions { name: Some(name.to_owned()), scale: Some(scale) }
}

/// Loads an adapter of `tests/golden/adapters`: a folder or a GGUF file.
fn add(engine: &Engine, path: &str, options: &AdapterOptions) -> Result<LoadedAdapter> {
    let path = golden("adapters").join(path);
    if path.is_dir() {
        let folder = DirectoryFolder::new(path);
        return pollster::block_on(engine.load_adapter(&folder, None, options, &mut |_, _| Ok(())));
    }
    let source = FileSource::open(path)?;
    pollster::block_on(engine.load_adapter(&OneFile(&source), None, options, &mut |_, _| Ok(())))
}

struct Golden {
    models: Vec<String>,
    scales: Vec<f32>,
    ids: Vec<u32>,
    greedy: Vec<u32>,
    /// [ids, vocabulary]
    logits: Vec<f32>,
}

fn read(case: &str) -> Golden {
    let folder = golden("adapters").join(case);
    let said: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap();
    let bytes = std::fs::read(folder.join("logits.npy")).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    Golden {
        models: serde_json::from_value(said["models"].clone()).unwrap(),
        scales: serde_json::from_value(said["scales"].clone()).unwrap(),
        ids: serde_json::from_value(said["ids"].clone()).unwrap(),
        greedy: serde_json::from_value(said["greedy"].clone()).unwrap(),
        logits: bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

fn forward(engine: &Engine, ids: &[u32]) -> Vec<f32> {
    pollster::block_on(async { engine.forward(ids).await?.readback().await }).unwrap()
}

fn worst_row(a: &[f32], b: &[f32], columns: usize) -> f64 {
    assert!(a.len() <= b.len() && !a.is_empty());
    let rows = a.chunks_exact(columns).zip(b.chunks_exact(columns));
    let error = |(a, b): (&[f32], &[f32])| {
        let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        (difference / b.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
    };
    rows.map(error).fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
}

fn begin(engine: &Engine, request: Value) -> Result<rillm::engine::Generation> {
    engine.complete(CompletionRequest::parse(request)?)
}

async fn rest(mut generation: rillm::engine::Generation) -> Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn tokens(chunks: &[Chunk]) -> Vec<u32> {
    chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect()
}

fn greedy(prompt: &[u32], length: usize, more: Value) -> Value {
    let mut request = json!({"prompt": prompt, "max_tokens": length, "temperature": 0, "ignore_eos": true});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn answer(engine: &Engine, request: Value) -> Vec<u32> {
    tokens(&pollster::block_on(rest(begin(engine, request).unwrap())).unwrap())
}

/// The answer, and how many of the prompt's tokens were found in a cache.
fn cached(engine: &Engine, request: Value) -> (Vec<u32>, usize) {
    let chunks = pollster::block_on(rest(begin(engine, request).unwrap())).unwrap();
    (tokens(&chunks), chunks.last().unwrap().usage.unwrap().prompt_tokens_details.cached_tokens)
}

/// On files of both kinds, by fused ops and by one at a time, for one token, few and many, and token by token.
#[test]
fn models_with_adapters_give_what_peft_gives() {
    for case in CASES {
        let wanted = read(case);
        let columns = wanted.logits.len() / wanted.ids.len();
        for (number, model) in wanted.models.iter().enumerate() {
            let unfused_ops = number == 1;
            let engine = load(model, &LoadOptions { unfused_ops, ..exact() });
            for (adapter, scale) in wanted.scales.iter().enumerate() {
                add(&engine, &format!("{case}/adapter{adapter}"), &named(&format!("a{adapter}"), *scale)).unwrap();
            }
            for length in [1, 5, wanted.ids.len()] {
                let error = worst_row(&forward(&engine, &wanted.ids[..length]), &wanted.logits, columns);
                assert!(error <= TOLERANCE, "{case}, {model}, {length} tokens: relative error {error:.2e}");
            }
            let asked = greedy(&wanted.ids, wanted.greedy.len(), json!({}));
            assert_eq!(answer(&engine, asked.clone()), wanted.greedy, "{case}, {model}");
            let drafts = json!({"speculation": {"type": "prompt_lookup", "min_ngram": 1}});
            assert_eq!(
                answer(&engine, greedy(&wanted.ids, wanted.greedy.len(), drafts)),
                wanted.greedy,
                "{case}, drafts"
            );
        }
    }
}

#[test]
fn a_gguf_adapter_gives_the_same_as_the_folder_it_was_made_of() {
    let wanted = read("llama");
    let columns = wanted.logits.len() / wanted.ids.len();
    for model in &wanted.models {
        let engine = load(model, &exact());
        let info = add(&engine, "llama/adapter0.gguf", &AdapterOptions::default()).unwrap();
        assert_eq!((info.name.as_str(), info.scale, info.rank), ("adapter0", 1.0, 4));
        assert_eq!(info.format, AdapterFormat::Gguf);
        let error = worst_row(&forward(&engine, &wanted.ids), &wanted.logits, columns);
        assert!(error <= TOLERANCE, "{model}: relative error {error:.2e}");
    }
}

/// With 8-bit activations the adapter still reads exact ones.
#[test]
fn fast_prompts_on_quantised_weights_come_close() {
    let wanted = read("llama_q4_0");
    let columns = wanted.logits.len() / wanted.ids.len();
    let options = LoadOptions { precision: Some(Precision::Fast), ..LoadOptions::default() };
    let engine = load(&wanted.models[0], &options);
    let without = worst_row(&forward(&engine, &wanted.ids), &wanted.logits, columns);
    add(&engine, "llama_q4_0/adapter0", &named("a", 1.0)).unwrap();
    let with = worst_row(&forward(&engine, &wanted.ids), &wanted.logits, columns);
    // Rows of 64 in int8 are some hundredths off by themselves.
    assert!(with < 0.1 && without > 5.0 * with, "{with:.2e} with the adapter, {without:.2e} without");
}

#[test]
fn a_product_takes_one_dispatch_more_and_none_where_nothing_is_active() {
    let case = read("llama");
    let engine = load(&case.models[0], &exact());
    let dispatches = || {
        let before = engine.stats().dispatches;
        let logits = forward(&engine, &case.ids[..1]);
        (engine.stats().dispatches - before, logits)
    };
    dispatches();
    let (plain, alone) = dispatches();
    add(&engine, "llama/adapter0", &named("a", 0.0)).unwrap();
    assert_eq!(dispatches(), (plain, alone.clone()), "an adapter of scale 0");
    engine.set_adapter_scale("a", 1.0).unwrap();
    dispatches();
    let (with, changed) = dispatches();
    assert_ne!(alone, changed);
    // In each of two layers one for each of four matrices, which are joined: the products add the rest.
    assert_eq!(with, plain + 2 * 4);
    let before = engine.stats();
    for scale in [0.5, -2.0, 1e-3, 1.0] {
        engine.set_adapter_scale("a", scale).unwrap();
        let (count, logits) = dispatches();
        assert_eq!((count, logits == changed), (with, scale == 1.0));
    }
    let after = engine.stats();
    assert_eq!(after.pipelines.misses, before.pipelines.misses, "another scale compiles nothing");
    engine.unload_adapter("a").unwrap();
    assert_eq!(dispatches(), (plain, alone), "after it was unloaded");
    assert_eq!(engine.stats().memory.adapters, 0);
}

/// A request says which adapters it runs with, and nobody else's keys and values are reused.
#[test]
fn each_request_has_its_adapters_and_its_own_cache() {
    let (one, two) = (read("llama"), read("llama_two"));
    let engine = load(&one.models[0], &LoadOptions { max_sequences: Some(2), ..exact() });
    let prompt = &two.ids;
    let plain = answer(&engine, greedy(prompt, 12, json!({})));
    for adapter in 0..2 {
        add(&engine, &format!("llama_two/adapter{adapter}"), &named(&format!("a{adapter}"), 0.0)).unwrap();
    }
    assert_eq!(cached(&engine, greedy(prompt, 12, json!({}))), (plain.clone(), 23), "of scale 0");
    let both = json!({"adapters": {"a0": 1.0, "a1": -0.6}});
    assert_eq!(cached(&engine, greedy(prompt, 12, both.clone())), (two.greedy.clone(), 0));
    assert_eq!(cached(&engine, greedy(prompt, 12, both.clone())), (two.greedy.clone(), 23));
    // Other scales are another text.
    let (other, found) = cached(&engine, greedy(prompt, 12, json!({"adapters": {"a0": 1.0, "a1": 0.6}})));
    assert!(found == 0 && other != two.greedy);
    // The slot was lost, and the prompt cache knows it.
    assert_eq!(cached(&engine, greedy(prompt, 12, json!({"adapters": {}}))), (plain.clone(), 23));
    assert_eq!(cached(&engine, greedy(prompt, 12, both.clone())), (two.greedy.clone(), 23));
    engine.set_adapter_scale("a0", 1.0).unwrap();
    engine.set_adapter_scale("a1", -0.6).unwrap();
    assert_eq!(cached(&engine, greedy(prompt, 12, json!({}))), (two.greedy.clone(), 23));
    let choices = begin(&engine, greedy(prompt, 12, json!({"n": 2}))).unwrap();
    let chunks = pollster::block_on(rest(choices)).unwrap();
    for index in 0..2 {
        let own: Vec<Chunk> = chunks.iter().filter(|chunk| chunk.index == index).cloned().collect();
        assert_eq!(tokens(&own), two.greedy, "choice {index}");
    }
    // The same adapter, loaded again, finds what it left.
    engine.unload_adapter("a1").unwrap();
    add(&engine, "llama_two/adapter1", &named("again", -0.6)).unwrap();
    assert_eq!(cached(&engine, greedy(prompt, 12, json!({}))), (two.greedy, 23));
}

/// Sequences with different adapters, with several and with none share steps, and each gives what it gives alone.
#[test]
fn sequences_with_different_adapters_share_a_batch() {
    let two = read("llama_two");
    let load_all = |sequences: usize| {
        let engine = load(&two.models[0], &LoadOptions { max_sequences: Some(sequences), ..exact() });
        for adapter in 0..2 {
            add(&engine, &format!("llama_two/adapter{adapter}"), &named(&format!("a{adapter}"), 0.0)).unwrap();
        }
        engine
    };
    let asked = |index: usize| {
        let adapters =
            [json!({}), json!({"a0": 1.0}), json!({"a0": 1.0, "a1": -0.6}), json!({"a1": 2.0}), json!({"a0": -1})];
        let drafts = json!({"adapters": adapters[index], "speculation": {"type": "prompt_lookup", "min_ngram": 1}});
        let plain = json!({"adapters": adapters[index]});
        greedy(&two.ids[..20 + index % 3], 24 + index, if index == 4 { drafts } else { plain })
    };
    let alone = load_all(1);
    let wanted: Vec<Vec<u32>> = (0..5).map(|index| answer(&alone, asked(index))).collect();
    assert!((1..5).all(|index| wanted[index][..20] != wanted[0][..20]));
    let engine = load_all(5);
    for round in 0..2 {
        let runs = (0..5).map(|index| rest(begin(&engine, asked(index)).unwrap()));
        let got = pollster::block_on(join_all(runs));
        for (index, chunks) in got.into_iter().enumerate() {
            assert_eq!(tokens(&chunks.unwrap()), wanted[index], "request {index}, round {round}");
        }
    }
}

/// Who runs with an adapter goes on with it when it is unloaded or another one is loaded; then its memory is free.
#[test]
fn what_runs_goes_on_with_an_adapter_that_is_unloaded() {
    let case = read("llama");
    let engine = load(&case.models[0], &LoadOptions { max_sequences: Some(2), ..exact() });
    add(&engine, "llama/adapter0", &named("a", 1.0)).unwrap();
    let mut generation = begin(&engine, greedy(&case.ids, case.greedy.len(), json!({}))).unwrap();
    pollster::block_on(async {
        let first = generation.next().await.unwrap().unwrap();
        engine.unload_adapter("a").unwrap();
        let folder = DirectoryFolder::new(golden("adapters/llama_patterns/adapter0"));
        engine.load_adapter(&folder, None, &named("b", 3.0), &mut |_, _| Ok(())).await.unwrap();
        let other = begin(&engine, greedy(&case.ids, 12, json!({}))).unwrap();
        let (own, _) = join(rest(generation), rest(other)).await;
        assert_eq!([first.token_ids, tokens(&own.unwrap())].concat(), case.greedy);
        engine.unload_adapter("b").unwrap();
    });
    assert!(engine.adapters().is_empty());
    assert_eq!(engine.stats().memory.adapters, 0);
    // Nobody holds what was unloaded: all places are free.
    for number in 0..16 {
        add(&engine, "llama/adapter0", &named(&format!("a{number}"), 0.0)).unwrap();
    }
}

#[test]
fn a_session_is_restored_with_the_adapters_it_was_saved_with() {
    let demo = crate::support::files::demo_model();
    let load_demo = || load(demo.to_str().unwrap(), &exact());
    let engine = load_demo();
    let (peft, rank) = (random_adapter(&engine), 2);
    let add_random = |engine: &Engine, name: &str, scale: f32| {
        let options = named(name, scale);
        pollster::block_on(engine.load_adapter(&peft, None, &options, &mut |_, _| Ok(())))
            .map(|info| assert_eq!(info.rank, rank))
    };
    add_random(&engine, "tone", 0.5).unwrap();
    let conversation = json!({"messages": [{"role": "user", "content": "What is 12 plus 30, and how do you know?"}]});
    let mut bytes = Vec::new();
    let mut write = |piece: Vec<u8>| {
        bytes.extend(piece);
        Ok(())
    };
    let session = pollster::block_on(engine.save_session(&conversation, None, &mut write)).unwrap();
    let saved = session.adapters.as_deref().unwrap();
    assert_eq!((saved.len(), saved[0].name.as_str(), saved[0].scale), (1, "tone", 0.5));
    let restore = |engine: &Engine| pollster::block_on(engine.restore_session(&MemorySource::new(bytes.clone())));
    let other = load_demo();
    check_error(&restore(&other).unwrap_err(), Code::SessionMismatch, &["\"tone\"", "not loaded"]);
    let chat = |engine: &Engine, adapters: Value| {
        let mut request = conversation.clone();
        request["max_tokens"] = json!(1);
        request["adapters"] = adapters;
        let generation = engine.chat(rillm::engine::request::ChatRequest::parse(request).unwrap()).unwrap();
        let chunks = pollster::block_on(rest(generation)).unwrap();
        chunks.last().unwrap().usage.unwrap().prompt_tokens_details.cached_tokens
    };
    // The name is the caller's own.
    add_random(&other, "voice", 1.0).unwrap();
    assert_eq!(restore(&other).unwrap().tokens, session.tokens);
    assert_eq!(chat(&other, json!({"voice": 1.0})), 0);
    assert_eq!(chat(&other, json!({"voice": 0.5})), session.tokens);
    // A conversation that names it has its name of now.
    let mut naming = conversation.clone();
    naming["adapters"] = json!({"tone": 0.5});
    let mut bytes = Vec::new();
    let mut write = |piece: Vec<u8>| {
        bytes.extend(piece);
        Ok(())
    };
    pollster::block_on(engine.save_session(&naming, None, &mut write)).unwrap();
    let restored = pollster::block_on(other.restore_session(&MemorySource::new(bytes))).unwrap();
    assert_eq!(restored.conversation["adapters"], json!({"voice": 0.5}));
    assert_eq!(restored.conversation["messages"], conversation["messages"]);
}

/// An adapter for what the first layer's attention gives, in memory.
fn random_adapter(engine: &Engine) -> MemoryFolder {
    let width = engine.info().embedding_length;
    let values = |count: usize| (0..count).flat_map(|at| (((at * 37 % 101) as f32 - 50.0) / 500.0).to_le_bytes());
    let header = json!({
        "base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight":
            {"dtype": "F32", "shape": [2, width], "data_offsets": [0, 8 * width]},
        "base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight":
            {"dtype": "F32", "shape": [width, 2], "data_offsets": [8 * width, 16 * width]},
    });
    let config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 2}).to_string();
    files(&header, values(4 * width).collect(), &config)
}

fn files(header: &Value, data: Vec<u8>, config: &str) -> MemoryFolder {
    let header = header.to_string();
    let weights = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    MemoryFolder::new([
        ("adapter_config.json".to_owned(), config.as_bytes().to_vec()),
        ("adapter_model.safetensors".to_owned(), weights),
    ])
}

/// A folder with one pair of zeros.
fn pair(module: &str, [rank, columns]: [usize; 2], [rows, of_b]: [usize; 2], config: &Value) -> MemoryFolder {
    let (a, b) = (4 * rank * columns, 4 * rows * of_b);
    let header = json!({
        format!("base_model.model.{module}.lora_A.weight"):
            {"dtype": "F32", "shape": [rank, columns], "data_offsets": [0, a]},
        format!("base_model.model.{module}.lora_B.weight"):
            {"dtype": "F32", "shape": [rows, of_b], "data_offsets": [a, a + b]},
    });
    files(&header, vec![0; a + b], &config.to_string())
}

/// What doesn't fit is refused before anything is read, and leaves the engine as it was.
#[test]
fn adapters_that_do_not_fit_are_refused() {
    let case = read("llama");
    let engine = load(&case.models[0], &exact());
    let alone = forward(&engine, &case.ids);
    let config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 2});
    let q_proj = "model.layers.0.self_attn.q_proj";
    let try_folder = |folder: &MemoryFolder| {
        pollster::block_on(engine.load_adapter(folder, None, &named("x", 1.0), &mut |_, _| Ok(()))).unwrap_err()
    };
    let refused = |module: &str, a, b, config: &Value, code, words: &[&str]| {
        check_error(&try_folder(&pair(module, a, b, config)), code, words);
    };
    refused("model.layers.9.self_attn.q_proj", [2, 32], [64, 2], &config, Code::AdapterMismatch, &["layers.9"]);
    refused("model.layers.0.wqkv", [2, 32], [64, 2], &config, Code::AdapterMismatch, &["wqkv", "llama"]);
    refused(q_proj, [2, 48], [64, 2], &config, Code::AdapterMismatch, &["q_proj", "[64, 48]"]);
    refused(q_proj, [2, 32], [65, 2], &config, Code::AdapterMismatch, &["q_proj", "[65, 32]"]);
    refused(q_proj, [3, 32], [64, 2], &config, Code::InvalidFile, &["one rank"]);
    refused(q_proj, [4, 32], [64, 4], &config, Code::InvalidFile, &["rank 4", "says 2"]);
    refused("lm_head", [2, 32], [264, 2], &config, Code::UnsupportedAdapter, &["lm_head", "output.weight"]);
    let dora = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "use_dora": true});
    refused(q_proj, [2, 32], [64, 2], &dora, Code::UnsupportedAdapter, &["use_dora"]);
    let (nan, header) =
        (f32::NAN.to_le_bytes(), |name: &str| json!({name: {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}}));
    let one = |name: &str| files(&header(name), nan.to_vec(), &config.to_string());
    let name = |end: &str| format!("base_model.model.{q_proj}.{end}");
    check_error(&try_folder(&one(&name("lora_A.weight"))), Code::InvalidFile, &["only one"]);
    check_error(&try_folder(&one(&name("lora_magnitude_vector"))), Code::UnsupportedAdapter, &["DoRA"]);
    check_error(&try_folder(&one("base_model.model.lm_head.weight")), Code::UnsupportedAdapter, &["lm_head"]);
    check_error(&try_folder(&one("x.lora_embedding_A")), Code::UnsupportedAdapter, &["embedding"]);
    let empty = files(&json!({}), vec![], &config.to_string());
    check_error(&try_folder(&empty), Code::InvalidFile, &["no matrices"]);
    let pickled = MemoryFolder::new([
        ("adapter_config.json".to_owned(), config.to_string().into_bytes()),
        ("adapter_model.bin".to_owned(), vec![0]),
    ]);
    check_error(&try_folder(&pickled), Code::UnsupportedAdapter, &["adapter_model.bin"]);
    let mut broken = vec![0; 4 * (2 * 32 + 64 * 2)];
    broken[..4].copy_from_slice(&nan);
    let values = json!({
        name("lora_A.weight"): {"dtype": "F32", "shape": [2, 32], "data_offsets": [0, 256]},
        name("lora_B.weight"): {"dtype": "F32", "shape": [64, 2], "data_offsets": [256, 768]},
    });
    check_error(&try_folder(&files(&values, broken, &config.to_string())), Code::NumericalError, &["q_proj", "NaN"]);
    // A model is no adapter, and an adapter of another architecture is told from this one.
    let model = FileSource::open(golden(&case.models[0])).unwrap();
    let wrong = pollster::block_on(engine.load_adapter(&OneFile(&model), None, &named("x", 1.0), &mut |_, _| Ok(())));
    check_error(&wrong.unwrap_err(), Code::InvalidFile, &["general.type"]);
    let qwen = load("architectures/qwen3/model.gguf", &exact());
    check_error(&add(&qwen, "llama/adapter0.gguf", &named("x", 1.0)).unwrap_err(), Code::AdapterMismatch, &["qwen3"]);
    let gpt2 = load("architectures/gpt2/model.gguf", &exact());
    let unknown = add(&gpt2, "llama/adapter0", &named("x", 1.0)).unwrap_err();
    check_error(&unknown, Code::AdapterMismatch, &["model.layers.0", "gpt2"]);
    let encoder = load("encoders/bert/model.gguf", &LoadOptions::default());
    check_error(
        &add(&encoder, "llama/adapter0", &named("x", 1.0)).unwrap_err(),
        Code::UnsupportedAdapter,
        &["encoder"],
    );
    assert_eq!((engine.adapters(), forward(&engine, &case.ids)), (vec![], alone));
}

/// On GPUs, whose dispatches have an end.
#[test]
fn an_adapter_of_more_ranks_than_a_kernel_takes_is_refused() {
    let case = read("llama");
    let engine = load(&case.models[0], &LoadOptions { device_kind: DeviceKind::Gpu, ..exact() });
    let try_rank = |rank: usize| {
        let config = json!({"peft_type": "LORA", "r": rank, "lora_alpha": 2});
        let folder = pair("model.layers.0.self_attn.q_proj", [rank, 32], [64, rank], &config);
        pollster::block_on(engine.load_adapter(&folder, None, &named("x", 1.0), &mut |_, _| Ok(())))
    };
    // 512 tokens of a prompt's part have 128 MiB of numbers.
    let most = engine.context().device().capabilities().max_storage_binding_size / (4 * 512);
    let most = most.min(65535) as usize;
    for rank in [70000, (most / 2 + 1) * 2] {
        check_error(
            &try_rank(rank).unwrap_err(),
            Code::AdapterLimits,
            &["q_proj", &rank.to_string(), &most.to_string()],
        );
    }
    assert!(engine.adapters().is_empty());
    // One of a thousand works.
    assert_eq!(try_rank(1001).unwrap().rank, 1001);
    forward(&engine, &case.ids);
}

#[test]
fn names_and_scales_are_checked() {
    let case = read("llama");
    let engine = load(&case.models[0], &exact());
    let refused = |result: Result<LoadedAdapter>, code, words: &[&str]| check_error(&result.unwrap_err(), code, words);
    refused(add(&engine, "llama/adapter0", &named("", 1.0)), Code::InvalidRequest, &["empty"]);
    for scale in [f32::NAN, f32::INFINITY] {
        refused(add(&engine, "llama/adapter0", &named("a", scale)), Code::InvalidRequest, &["\"a\"", "finite"]);
    }
    let info = add(&engine, "llama/adapter0", &AdapterOptions::default()).unwrap();
    assert_eq!(engine.adapters(), std::slice::from_ref(&info));
    let targets = ["attn_k", "attn_output", "attn_q", "attn_v", "ffn_down", "ffn_gate", "ffn_up"];
    assert_eq!(
        (info.name.as_str(), info.format, &info.targets[..]),
        ("adapter0", AdapterFormat::Peft, &targets.map(String::from)[..])
    );
    assert_eq!(engine.stats().memory.adapters, info.bytes);
    refused(
        add(&engine, "llama/adapter0", &AdapterOptions::default()),
        Code::InvalidRequest,
        &["adapter0", "loaded already"],
    );
    check_error(&engine.set_adapter_scale("b", 1.0).unwrap_err(), Code::UnknownAdapter, &["\"b\"", "\"adapter0\""]);
    check_error(&engine.set_adapter_scale("adapter0", f32::NAN).unwrap_err(), Code::InvalidRequest, &["NaN"]);
    check_error(&engine.unload_adapter("b").unwrap_err(), Code::UnknownAdapter, &["\"b\""]);
    let request = |adapters: Value| begin(&engine, greedy(&case.ids, 1, json!({"adapters": adapters}))).err().unwrap();
    check_error(&request(json!({"b": 1})), Code::UnknownAdapter, &["\"b\""]);
    check_error(&request(json!({"adapter0": 1e300})), Code::InvalidRequest, &["adapter0"]);
    for wrong in [json!([]), json!({"adapter0": "1"}), json!({"adapter0": null}), json!("adapter0")] {
        check_error(&request(wrong), Code::InvalidRequest, &["adapters"]);
    }
    engine.unload_adapter("adapter0").unwrap();
    check_error(&request(json!({"adapter0": 1})), Code::UnknownAdapter, &["none is loaded"]);
    for number in 0..16 {
        add(&engine, "llama/adapter0", &named(&format!("a{number}"), 0.01)).unwrap();
    }
    refused(add(&engine, "llama/adapter0", &named("a16", 1.0)), Code::InvalidRequest, &["16 adapters"]);
    // All of them at once.
    assert_eq!(answer(&engine, greedy(&case.ids, 4, json!({}))).len(), 4);
    engine.unload_adapter("a3").unwrap();
    add(&engine, "llama/adapter0", &named("a16", 1.0)).unwrap();
}

/// Two loads at once, of which one has the other's name, and one that is given up.
#[test]
fn loads_at_once_and_loads_that_end_early() {
    let case = read("llama");
    let engine = load(&case.models[0], &exact());
    let folder = DirectoryFolder::new(golden("adapters/llama/adapter0"));
    let load = async |name: &str| engine.load_adapter(&folder, None, &named(name, 1.0), &mut |_, _| Ok(())).await;
    let both = pollster::block_on(join3(load("a"), load("a"), load("b")));
    assert!(both.0.is_ok() != both.1.is_ok() && both.2.is_ok(), "{both:?}");
    let aborted = pollster::block_on(engine.load_adapter(&folder, None, &named("c", 1.0), &mut |loaded, total| {
        if loaded * 2 > total { Err(Error::new(Code::Aborted, "enough")) } else { Ok(()) }
    }));
    assert_eq!(aborted.unwrap_err().code(), Code::Aborted);
    let names: Vec<String> = engine.adapters().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["a", "b"]);
    // Both are the same adapter: together it counts twice.
    let two = json!({"adapters": {"a": 0.5, "b": 0.5}});
    assert_eq!(answer(&engine, greedy(&case.ids, case.greedy.len(), two)), case.greedy);
}

/// The scales and the folders of this file are there.
#[test]
fn every_golden_adapter_is_tested() {
    let mut found: Vec<String> = std::fs::read_dir(golden("adapters"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let mut tested = CASES.map(str::to_owned);
    tested.sort();
    assert_eq!(found, tested);
    assert!(Path::new(&golden("adapters/llama/adapter0.gguf")).exists());
}
