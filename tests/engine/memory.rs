//! The GPU's memory: whose it is, how much of it a load takes at most, and loads that find no room.

use std::cell::RefCell;
use std::rc::Rc;

use super::gguf::writer::{ARRAY, Writer, strings};
use crate::support::engines::try_load;
use crate::support::files::golden;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{
    Autotune, DeviceKind, DeviceOptions, Engine, LoadOptions, MemoryPressure, MemoryUse, Precision, PressureAction,
    PressureListener, inspect,
};
use rillm::error::Code;
use rillm::model::checkpoint::Checkpoint;
use rillm::model::folder::OneFile;
use rillm::model::source::MemorySource;
use serde_json::json;

const MODEL: &str = "tiny_llama/tied-q8_0.gguf";

fn answer(engine: &Engine, prompt: Vec<u32>, tokens: usize) -> rillm::Result<Vec<u32>> {
    let request = json!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
    let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
    let mut tokens = Vec::new();
    while let Some(chunk) = pollster::block_on(generation.next())? {
        tokens.extend(chunk.token_ids);
    }
    Ok(tokens)
}

fn prompt(seed: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| (at * at * 7 + at * seed + seed) % 60 + 4).collect()
}

#[track_caller]
fn adds_up(engine: &Engine) -> MemoryUse {
    let stats = engine.stats();
    let memory = stats.memory;
    let MemoryUse { weights, kv_cache, recurrent_state, recurrent_checkpoints, prompt_cache, arenas, .. } = memory;
    let lasting = weights + kv_cache + recurrent_state + recurrent_checkpoints + prompt_cache;
    assert_eq!(lasting + arenas + memory.pools + memory.other, memory.total, "{memory:?}");
    assert_eq!((memory.total, memory.peak), (stats.live_bytes, stats.peak_bytes));
    let info = engine.info();
    assert_eq!((weights, kv_cache + recurrent_state), (info.weight_bytes, info.kv_cache_bytes));
    memory
}

#[test]
fn the_bytes_of_all_owners_add_up() {
    let options = LoadOptions { max_sequences: Some(2), context_length: Some(128), ..Default::default() };
    let engine = try_load(MODEL, &options).unwrap();
    let loaded = adds_up(&engine);
    assert!(loaded.arenas > 0 && loaded.prompt_cache == 0, "{loaded:?}");
    for seed in [3, 5, 8] {
        answer(&engine, prompt(seed, 70), 4).unwrap();
        adds_up(&engine);
    }
    assert!(adds_up(&engine).prompt_cache > 0);
    let passes = pollster::block_on(engine.forward(&prompt(1, 40))).unwrap();
    assert!(adds_up(&engine).other > loaded.other, "the logits are somebody's");
    drop(passes);
    adds_up(&engine);
}

/// Copies of recurrent states are counted, and an inspection has told how many bytes they take at most.
#[test]
fn checkpoints_of_recurrent_states_are_counted() {
    let options = LoadOptions { max_sequences: Some(2), ..Default::default() };
    let said = |model: &str| {
        let source = FileSource::open(golden(format!("architectures/{model}/model.gguf"))).unwrap();
        pollster::block_on(inspect(&OneFile(&source), None, &options)).unwrap().recurrent_checkpoint_bytes.unwrap()
    };
    let engine = try_load("architectures/granite4/model.gguf", &options).unwrap();
    assert_eq!(adds_up(&engine).recurrent_checkpoints, 0);
    for seed in [3, 5, 8] {
        for tokens in [3, 9] {
            answer(&engine, prompt(seed, 70), tokens).unwrap();
        }
        let memory = adds_up(&engine);
        let most = said("granite4");
        assert!((1..=most).contains(&memory.recurrent_checkpoints), "{memory:?}, at most {most}");
        // Eight of each of two sequences.
        assert_eq!(most, 8 * memory.recurrent_state);
    }
    assert_eq!(said("mistral"), 0);
}

/// A token reads a row of a table of embeddings for each layer, and the matrices of the experts that it uses.
#[test]
fn what_a_token_does_not_read_is_left_out_of_its_bytes() {
    let unread = |model: &str, is_table: fn(&str) -> bool, share: (u64, u64)| {
        let engine = try_load(format!("architectures/{model}/model.gguf"), &LoadOptions::default()).unwrap();
        let source = FileSource::open(golden(format!("architectures/{model}/model.gguf"))).unwrap();
        let file = OneFile(&source);
        let checkpoint = pollster::block_on(Checkpoint::open(&file, None)).unwrap();
        let found = checkpoint.tensors.iter().filter(|tensor| is_table(&tensor.name));
        let bytes: u64 = found.map(|tensor| tensor.bytes() / share.1 * share.0).sum();
        let info = engine.info();
        assert!(bytes > 0 && info.weight_bytes - info.weight_bytes_per_token == bytes, "{model}: {bytes}, {info:?}");
    };
    unread("gemma4_e", |name| name == "per_layer_token_embd.weight", (1, 1));
    // What is quantised while loading takes its bytes on the GPU, and no more.
    let options = LoadOptions { quantize: Some("q8_0".to_owned()), ..Default::default() };
    let quantized = try_load("architectures/mistral/model.gguf", &options).unwrap();
    let plain = try_load("architectures/mistral/model.gguf", &LoadOptions::default()).unwrap();
    let table = |engine: &Engine| engine.info().weight_bytes - engine.info().weight_bytes_per_token;
    assert!(
        table(&plain) > 3 * table(&quantized) && table(&quantized) > 0,
        "{} and {}",
        table(&plain),
        table(&quantized)
    );
    // Two of four experts, and an output that is not the embedding.
    unread("lfm2_moe", |name| name.contains("_exps."), (2, 4));
}

/// A load and a prompt need so much besides the weights and the cache: the buffer of uploads, above all.
const BESIDES: u64 = 13_000_000;

/// Loads the heavy model with so many bytes on the GPU; also what the listener was told.
fn load_within(bytes: u64, options: LoadOptions) -> (rillm::Result<Engine>, Vec<MemoryPressure>) {
    let told = Rc::new(RefCell::new(Vec::new()));
    let hears = told.clone();
    let on_memory_pressure = PressureListener::new(move |pressure: &MemoryPressure| {
        hears.borrow_mut().push(pressure.clone());
    });
    let device = DeviceOptions { memory_limit: Some(bytes), ..Default::default() };
    let options = LoadOptions { device, on_memory_pressure, ..options };
    (pollster::block_on(Engine::load(&heavy(4096), &options, &mut |_| Ok(()))), told.take())
}

/// A Llama whose weights are most of what it takes: 8 layers, 45 MB in Q8_0.
fn heavy(context_length: u32) -> MemorySource {
    let (embedding, forward, keys) = (1024u64, 1024u64, 128u64);
    let tokens: Vec<String> = (0..64).map(|token| format!("t{token}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut state = 1u32;
    let mut pattern = Vec::new();
    for _ in 0..1021 {
        // A scale of 2^-10 as f16.
        pattern.extend([0x00, 0x14]);
        for _ in 0..32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            pattern.push((state >> 24) as u8);
        }
    }
    let q8_0 = |dims: &[u64]| {
        let bytes = dims.iter().product::<u64>() as usize / 32 * 34;
        let mut data = pattern.repeat(bytes.div_ceil(pattern.len()));
        data.truncate(bytes);
        data
    };
    let ones = |length: u64| 1f32.to_le_bytes().repeat(length as usize);
    let mut writer = Writer::new()
        .str("general.architecture", "llama")
        .u32("llama.block_count", 8)
        .u32("llama.embedding_length", embedding as u32)
        .u32("llama.feed_forward_length", forward as u32)
        .u32("llama.attention.head_count", 16)
        .u32("llama.attention.head_count_kv", 2)
        .u32("llama.rope.dimension_count", 64)
        .u32("llama.context_length", context_length)
        .f32("llama.rope.freq_base", 10000.0)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .str("tokenizer.ggml.model", "gpt2")
        .entry("tokenizer.ggml.tokens", ARRAY, strings(&tokens))
        .entry("tokenizer.ggml.merges", ARRAY, strings(&[]))
        .tensor("output_norm.weight", &[embedding], 0, ones(embedding));
    let data = q8_0(&[embedding, 64]);
    writer = writer.tensor("token_embd.weight", &[embedding, 64], 8, data);
    for layer in 0..8 {
        for (name, dims) in [
            ("attn_q", [embedding, embedding]),
            ("attn_k", [embedding, keys]),
            ("attn_v", [embedding, keys]),
            ("attn_output", [embedding, embedding]),
            ("ffn_gate", [embedding, forward]),
            ("ffn_up", [embedding, forward]),
            ("ffn_down", [forward, embedding]),
        ] {
            let data = q8_0(&dims);
            writer = writer.tensor(&format!("blk.{layer}.{name}.weight"), &dims, 8, data);
        }
        for name in ["attn_norm", "ffn_norm"] {
            writer = writer.tensor(&format!("blk.{layer}.{name}.weight"), &[embedding], 0, ones(embedding));
        }
    }
    MemorySource::new(writer.bytes()).with_name("heavy.gguf")
}

/// Through load, tuning and prompts of several lengths no more is ever held than a tenth above what stays, and what is written at one time is
/// bounded too.
#[test]
fn the_peak_is_a_tenth_above_what_stays() {
    let options = LoadOptions { autotune: Autotune::Always, ..Default::default() };
    let engine = pollster::block_on(Engine::load(&heavy(1024), &options, &mut |_| Ok(()))).unwrap();
    let stays = engine.info().weight_bytes + engine.info().kv_cache_bytes;
    assert!(stays > 50_000_000, "{stays}");
    let check = |when: &str| {
        let memory = adds_up(&engine);
        let most = stays + stays / 10;
        assert!(memory.peak <= most, "{when}: {} bytes at most, {stays} stay: {memory:?}", memory.peak);
        assert!(memory.peak_unfinished_writes <= stays / 8, "{when}: {memory:?}");
    };
    check("after the load");
    for length in [20, 96, 65] {
        answer(&engine, prompt(length, length), 2).unwrap();
        check("after a prompt");
    }
}

/// The default context gives way to the weights, and the engine answers as one that was loaded with the shorter context. Weights without room, and a
/// context that was named, end the load with what was needed and what was held.
#[test]
fn a_load_without_room_takes_a_shorter_context_or_says_why_not() {
    let named = |context_length| LoadOptions { context_length: Some(context_length), ..Default::default() };
    let short = pollster::block_on(Engine::load(&heavy(4096), &named(1024), &mut |_| Ok(()))).unwrap();
    let (weights, cache) = (short.info().weight_bytes, short.info().kv_cache_bytes);
    let wanted = answer(&short, prompt(3, 40), 4).unwrap();
    drop(short);

    let (engine, told) = load_within(weights + BESIDES, LoadOptions::default());
    let engine = engine.unwrap();
    let taken = engine.info().context_length;
    assert!((512..=1024).contains(&taken), "{taken}");
    let warning = engine.info().warnings.iter().find(|warning| warning.code == "shorter_context").unwrap();
    assert!(warning.message.contains("4096") && warning.message.contains(&taken.to_string()), "{warning:?}");
    let actions: Vec<PressureAction> = told.iter().map(|pressure| pressure.action).collect();
    assert_eq!(actions, [PressureAction::ShorterContext]);
    assert!(told[0].needed_bytes >= 4 * cache && told[0].message == warning.message, "{told:?}");
    assert_eq!(answer(&engine, prompt(3, 40), 4).unwrap(), wanted);
    drop(engine);

    for (bytes, options, words) in [
        (1000, LoadOptions::default(), ["the weights", "this engine holds", "needs 4", "MB"]),
        (weights + BESIDES, named(4096), ["the KV cache of 4096 tokens", "weights 4", "needs 33.6", "MB"]),
    ] {
        let (loaded, told) = load_within(bytes, options);
        let error = loaded.err().unwrap();
        assert_eq!(error.code(), Code::OutOfMemory, "{error}");
        for word in words {
            assert!(error.message().contains(word), "{word}: {error}");
        }
        assert!(told.is_empty(), "{told:?}");
    }
}

/// Sessions and forward passes fail by themselves too, and the engine goes on.
#[test]
fn what_finds_no_room_leaves_the_engine_usable() {
    let options = LoadOptions { context_length: Some(128), ..Default::default() };
    let engine = try_load(MODEL, &options).unwrap();
    let wanted = answer(&engine, prompt(3, 60), 8).unwrap();
    let chat = json!({"messages": [{"role": "user", "content": "the boat"}]});
    let mut saved = Vec::new();
    let mut write = |bytes: Vec<u8>| {
        saved.extend(bytes);
        Ok(())
    };
    pollster::block_on(engine.save_session(&chat, None, &mut write)).unwrap();
    let device = engine.context().device();
    pollster::block_on(device.free_unused()).unwrap();
    device.set_memory_limit(Some(engine.stats().live_bytes));
    let error = pollster::block_on(engine.forward(&prompt(1, 100))).err().unwrap();
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    // What was evicted for it is not to be used.
    device.set_memory_limit(Some(engine.stats().live_bytes));
    let error = answer(&engine, prompt(4, 100), 4).unwrap_err();
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    assert!(error.message().contains("this engine holds") && error.message().contains("KV cache"), "{error}");
    // What was kept to save is evicted, and nothing else is needed.
    let saved = MemorySource::new(saved);
    pollster::block_on(engine.restore_session(&saved)).unwrap();
    device.set_memory_limit(None);
    assert_eq!(answer(&engine, prompt(3, 60), 8).unwrap(), wanted);
    adds_up(&engine);
}

/// Weights that are packed for the CPU take more than those of a file: where they find no room, the load says what does.
#[test]
fn packed_weights_without_room_are_told() {
    let load = |precision, limit| {
        let options = LoadOptions {
            device_kind: DeviceKind::Cpu,
            precision: Some(precision),
            context_length: Some(64),
            device: DeviceOptions { memory_limit: limit, ..Default::default() },
            ..Default::default()
        };
        pollster::block_on(Engine::load(&heavy(4096), &options, &mut |_| Ok(())))
    };
    let fast = load(Precision::Fast, None).unwrap();
    let exact = load(Precision::Exact, None).unwrap();
    let (packed, plain) = (fast.info().weight_bytes, exact.info().weight_bytes);
    assert!(packed > plain && packed < plain * 11 / 10, "{packed} bytes in place of {plain}");
    // Nothing is held twice.
    assert!(fast.stats().memory.total < packed + packed / 10, "{}", fast.stats().memory);
    let limit = Some((plain + packed) / 2);
    let error = load(Precision::Fast, limit).err().unwrap();
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    assert!(error.message().contains("\"exact\" takes less"), "{error}");
    let error = load(Precision::Exact, Some(plain / 2)).err().unwrap();
    assert!(error.code() == Code::OutOfMemory && !error.message().contains("packed"), "{error}");
}
