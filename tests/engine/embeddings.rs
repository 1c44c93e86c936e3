//! Embeddings against transformers: tiny random encoders from both formats, and all-MiniLM-L6-v2 straight from its Hugging Face
//! folder; what a request may hold, and what an encoder refuses.
//!
//! The golden files and how they were made: tests/golden/README.md.

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::engines::exact_on_cpu;
use crate::support::real_models;
use rillm::engine::folder::{DirectoryFolder, MemoryFolder};
use rillm::engine::request::{ChatRequest, CompletionRequest};
use rillm::engine::source::FileSource;
use rillm::engine::{DeviceOptions, EmbeddingRequest, Embeddings, Engine, LoadOptions, Precision};
use rillm::error::{Code, Error};
use rillm::gpu::SimulatedGpu;
use rillm::model::arch::ARCHS;
use serde_json::{Value, json};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn folder(path: &Path) -> Result<Engine, Error> {
    let options = LoadOptions { device: DeviceOptions::default(), ..LoadOptions::default() };
    pollster::block_on(Engine::load_from(&DirectoryFolder::new(path), None, &options, &mut |_| Ok(())))
}

fn file(path: &Path) -> Result<Engine, Error> {
    let source = FileSource::open(path).unwrap();
    pollster::block_on(Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(())))
}

fn embed(engine: &Engine, request: Value) -> Result<Embeddings, Error> {
    pollster::block_on(engine.embed(EmbeddingRequest::parse(request)?))
}

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))).unwrap()
}

/// The cosine of two vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Where an adapter binds little at once, matrices lie in parts.
#[test]
fn encoders_whose_matrices_lie_in_parts_give_the_same() {
    for model in ["bert", "nomic_bert"] {
        let path = golden().join("encoders").join(model);
        let golden = read(path.join("golden.json"));
        let wanted: Vec<Vec<f32>> = serde_json::from_value(golden["vectors"].clone()).unwrap();
        let ids: Vec<Vec<u32>> = serde_json::from_value(golden["ids"].clone()).unwrap();
        // The shortest, whose activations fit.
        let (shortest, ids) = ids.iter().enumerate().min_by_key(|(_, ids)| ids.len()).unwrap();
        let device = DeviceOptions { storage_binding: Some(4000), ..DeviceOptions::default() };
        let options = LoadOptions { device, ..LoadOptions::default() };
        let source = DirectoryFolder::new(&path);
        let engine = pollster::block_on(Engine::load_from(&source, None, &options, &mut |_| Ok(()))).unwrap();
        check(model, &embed(&engine, json!({"input": ids})).unwrap().values, &wanted[shortest]);
    }
}

#[test]
fn tiny_encoders_give_the_vectors_of_transformers_from_both_formats() {
    let models = [
        "bert",
        "nomic_bert",
        "modern_bert",
        "gemma_embedding",
        "jina_bert_v2",
        "jina_bert_v3",
        "gte",
        "mpnet",
        "deberta_v2",
        "t5encoder",
    ];
    let encoders = ARCHS.iter().filter(|arch| arch.is_encoder).map(|arch| arch.name.replace('-', "_"));
    assert!(encoders.eq(models), "every encoder has a golden model");
    // To us three kinds of BERT, and two models under the names of their makers.
    let others = [
        "xlm_roberta",
        "distilbert",
        "electra",
        "jina_bert_v3_prefixed",
        "jina_bert_v3_transformers",
        "gte_prefixed",
        "gte_transformers",
        "gte_new",
    ];
    for model in models.into_iter().chain(others) {
        let path = golden().join("encoders").join(model);
        let golden = read(path.join("golden.json"));
        let of = |key: &str| serde_json::from_value::<Vec<Vec<f32>>>(golden[key].clone()).unwrap();
        // The folder holds the GGUF file too; the safetensors are what it is taken for.
        let mut engines = vec![("folder", folder(&path).unwrap(), of("vectors"))];
        if path.join("model.gguf").exists() {
            // llama.cpp's files have no functions after the layers that follow the pooling.
            let key = if golden.get("gguf_vectors").is_some() { "gguf_vectors" } else { "vectors" };
            engines.push(("GGUF", file(&path.join("model.gguf")).unwrap(), of(key)));
        }
        for (what, engine, wanted) in engines {
            assert!(engine.info().embeds && !engine.info().generates && engine.info().warnings.is_empty());
            assert_eq!((engine.info().kv_cache_bytes, engine.info().context_length), (0, 64));
            assert_eq!(engine.info().embedding_length, wanted[0].len());
            // All in one pass, as texts and as tokens, and each alone.
            for input in [&golden["texts"], &golden["ids"]] {
                let got = embed(&engine, json!({"input": input})).unwrap();
                assert_eq!(got.dimensions, wanted[0].len());
                let tokens: usize =
                    golden["ids"].as_array().unwrap().iter().map(|ids| ids.as_array().unwrap().len()).sum();
                assert_eq!((got.usage.prompt_tokens, got.usage.total_tokens), (tokens, tokens));
                assert_eq!(got.values.len(), wanted.len() * got.dimensions);
                for (n, (got, wanted)) in got.values.chunks_exact(got.dimensions).zip(&wanted).enumerate() {
                    check(&format!("{model} {what} {n}"), got, wanted);
                }
            }
            for (text, wanted) in golden["texts"].as_array().unwrap().iter().zip(&wanted) {
                check(
                    &format!("{model} {what} {text}"),
                    &embed(&engine, json!({"input": text})).unwrap().values,
                    wanted,
                );
            }
        }
    }
}

fn check(what: &str, got: &[f32], wanted: &[f32]) {
    let difference: f64 = got.iter().zip(wanted).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
    assert!(difference < 1e-5, "{what}: {difference:e} off");
}

/// Whoever stops a request drops it: the passes that are left never run, and the next request gives what it gave before.
#[test]
fn a_request_that_is_dropped_runs_no_further() {
    let simulated = SimulatedGpu::new(|_| Duration::ZERO);
    let device = DeviceOptions { simulated_gpu: Some(simulated.clone()), ..DeviceOptions::default() };
    let options = LoadOptions { device, ..LoadOptions::default() };
    let path = golden().join("encoders/bert");
    let engine = pollster::block_on(Engine::load_from(&DirectoryFolder::new(&path), None, &options, &mut |_| Ok(())));
    let engine = engine.unwrap();
    // Five passes, each of as many texts as fit.
    let ids: Vec<u32> = (0..60).map(|place| 5 + place % 40).collect();
    let request = || EmbeddingRequest::parse(json!({"input": vec![ids.clone(); 40]})).unwrap();
    let device = engine.context().device();
    let dispatches = || simulated.take_submits().iter().map(|submit| submit.dispatches).sum::<usize>();
    dispatches();
    let wanted = pollster::block_on(engine.embed(request())).unwrap();
    let all = dispatches();
    for turns in [1, 2, 5] {
        // Whoever makes buffers waits for them.
        pollster::block_on(device.free_unused()).unwrap();
        dispatches();
        let mut embedding = Box::pin(engine.embed(request()));
        let mut turn = |task: &mut Context<'_>| Poll::Ready(embedding.as_mut().poll(task).is_pending());
        for _ in 0..turns {
            assert!(pollster::block_on(std::future::poll_fn(&mut turn)), "{turns} turns");
        }
        drop(embedding);
        pollster::block_on(device.sync()).unwrap();
        let ran = dispatches();
        assert!(ran < all / 2, "{ran} dispatches of {all} after {turns} turns");
        assert_eq!(pollster::block_on(engine.embed(request())).unwrap(), wanted);
    }
}

/// The keys that Nomic's own code writes, as the hub's files have them.
#[test]
fn the_hubs_configuration_of_nomic_bert_is_read() {
    let path = golden().join("encoders/nomic_bert");
    let golden = read(path.join("golden.json"));
    let wanted: Vec<Vec<f32>> = serde_json::from_value(golden["vectors"].clone()).unwrap();
    let config = json!({
        "model_type": "nomic_bert", "n_embd": 32, "n_layer": 3, "n_head": 2, "n_inner": 48, "n_positions": 8192,
        "max_trained_positions": 64, "vocab_size": 100, "type_vocab_size": 2, "layer_norm_epsilon": 1e-12,
        "activation_function": "swiglu", "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false,
        "rotary_emb_scale_base": null, "rotary_scaling_factor": null, "prenorm": false, "causal": false,
        "use_rms_norm": false, "qkv_proj_bias": false, "mlp_fc1_bias": false, "mlp_fc2_bias": false,
    });
    let load = |config: &Value| {
        let file = |name: &str| (name.to_owned(), std::fs::read(path.join(name)).unwrap());
        let mut files = vec![file("model.safetensors"), file("tokenizer.json"), file("1_Pooling/config.json")];
        files.push(("config.json".to_owned(), serde_json::to_vec(config).unwrap()));
        let folder = MemoryFolder::new(files);
        pollster::block_on(Engine::load_from(&folder, None, &LoadOptions::default(), &mut |_| Ok(())))
    };
    let engine = load(&config).unwrap();
    assert_eq!(engine.info().context_length, 64);
    let got = embed(&engine, json!({"input": golden["texts"]})).unwrap();
    assert_eq!(got.values.len(), wanted.len() * got.dimensions);
    for (n, (got, wanted)) in got.values.chunks_exact(got.dimensions).zip(&wanted).enumerate() {
        check(&format!("text {n}"), got, wanted);
    }
    for (key, value) in [("prenorm", json!(true)), ("causal", json!(true)), ("activation_function", json!("gelu"))] {
        let mut other = config.clone();
        other[key] = value;
        assert_eq!(load(&other).err().unwrap().code(), Code::UnsupportedArchitecture, "{key}");
    }
}

/// The keys that ModernBERT's files had before version 5 of transformers, as most of the hub's do.
#[test]
fn older_configurations_of_modern_bert_are_read() {
    let path = golden().join("encoders/modern_bert");
    let golden = read(path.join("golden.json"));
    let mut config = read(path.join("config.json"));
    let keys = config.as_object_mut().unwrap();
    keys.retain(|key, _| !["layer_types", "rope_parameters"].contains(&key.as_str()));
    for (key, value) in [
        ("global_attn_every_n_layers", json!(3)),
        ("global_rope_theta", json!(5000.0)),
        ("local_rope_theta", json!(200.0)),
        ("position_embedding_type", json!("absolute")),
    ] {
        keys.insert(key.to_owned(), value);
    }
    let file = |name: &str| (name.to_owned(), std::fs::read(path.join(name)).unwrap());
    let mut files = vec![file("model.safetensors"), file("tokenizer.json"), file("1_Pooling/config.json")];
    files.push(("config.json".to_owned(), config.to_string().into_bytes()));
    let folder = MemoryFolder::new(files);
    let engine =
        pollster::block_on(Engine::load_from(&folder, None, &LoadOptions::default(), &mut |_| Ok(()))).unwrap();
    let wanted: Vec<Vec<f32>> = serde_json::from_value(golden["vectors"].clone()).unwrap();
    let got = embed(&engine, json!({"input": golden["texts"]})).unwrap();
    for (n, (got, wanted)) in got.values.chunks_exact(got.dimensions).zip(&wanted).enumerate() {
        check(&format!("text {n}"), got, wanted);
    }
}

/// RoBERTa's positions begin at 2; a table or a configuration without any beyond is refused.
#[test]
fn positions_before_the_first_token_must_be_there() {
    let path = golden().join("encoders/xlm_roberta");
    let config = read(path.join("config.json"));
    let load = |change: &dyn Fn(&mut Value)| {
        let mut config = config.clone();
        change(&mut config);
        let file = |name: &str| (name.to_owned(), std::fs::read(path.join(name)).unwrap());
        let mut files = vec![file("model.safetensors"), file("tokenizer.json")];
        files.push(("config.json".to_owned(), serde_json::to_vec(&config).unwrap()));
        let folder = MemoryFolder::new(files);
        let error = pollster::block_on(Engine::load_from(&folder, None, &LoadOptions::default(), &mut |_| Ok(())));
        error.err().map(|error| error.code())
    };
    assert_eq!(load(&|_| {}), None);
    assert_eq!(load(&|config| config["model_type"] = json!("roberta")), None);
    assert_eq!(load(&|config| config["pad_token_id"] = json!(0)), Some(Code::UnsupportedArchitecture));
    assert_eq!(load(&|config| config["max_position_embeddings"] = json!(65)), Some(Code::ShapeMismatch));
    for length in [json!(2), json!(0), json!([66])] {
        assert_eq!(load(&|config| config["max_position_embeddings"] = length.clone()), Some(Code::InvalidMetadata));
    }
}

/// IEEE half precision, of an .npy file.
fn halves(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    bytes[header..].chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

#[test]
fn a_real_encoder_gives_the_vectors_of_transformers_straight_from_its_folder() {
    let Some(path) = real_models::minilm() else { return };
    let sentences: Vec<String> = serde_json::from_value(read(golden().join("minilm/sentences.json"))).unwrap();
    let wanted = halves(&golden().join("minilm/vectors.npy"));
    assert_eq!(sentences.len(), 200);
    let engine = folder(path).unwrap();
    let info = engine.info();
    assert_eq!((info.architecture.as_str(), info.embedding_length, info.context_length), ("bert", 384, 512));
    let got = embed(&engine, json!({"input": sentences})).unwrap();
    assert_eq!(got.values.len(), wanted.len());
    let mut worst = 1.0f64;
    for (n, (got, wanted)) in got.values.chunks_exact(384).zip(wanted.chunks_exact(384)).enumerate() {
        let cosine = cosine(got, wanted);
        assert!(cosine >= 0.9999, "{}: cosine {cosine}", sentences[n]);
        let length: f64 = got.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!((length - 1.0).abs() < 1e-5, "{}: length² {length}", sentences[n]);
        worst = worst.min(cosine);
    }
    println!("lowest cosine {worst}, {} tokens", got.usage.prompt_tokens);
    // The makers took 256 tokens, fewer than the positions there are.
    let long = "word ".repeat(300);
    let error = embed(&engine, json!({"input": [long, "short"]})).unwrap_err();
    assert_eq!(error.code(), Code::ContextLengthExceeded);
    assert!(error.message().contains("input 0 has 302 tokens and the model takes 256"), "{error}");
    let cut = embed(&engine, json!({"input": long, "truncate": true})).unwrap();
    assert_eq!(cut.usage.prompt_tokens, 256);
    let same = embed(&engine, json!({"input": "word ".repeat(254)})).unwrap();
    assert_eq!(cut.values, same.values);
}

#[test]
fn requests_are_checked() {
    let engine = folder(&golden().join("encoders/bert")).unwrap();
    let refused = |request: Value, code: Code, wanted: &str| {
        let error = embed(&engine, request.clone()).expect_err(&request.to_string());
        assert_eq!(error.code(), code, "{request}: {error}");
        assert!(error.message().contains(wanted), "{error} does not say {wanted}");
    };
    let invalid = Code::InvalidRequest;
    refused(json!({}), invalid, "input");
    refused(json!({"input": 7}), invalid, "input");
    refused(json!({"input": []}), invalid, "0 texts");
    refused(json!({"input": [[]]}), invalid, "input 0 has no tokens");
    refused(json!({"input": [[2, 3], [2, 100]]}), invalid, "input 1 has token id 100");
    refused(json!({"input": [-1]}), invalid, "input");
    refused(json!({"input": "a", "dimensions": 0}), invalid, "dimensions is 0");
    refused(json!({"input": "a", "dimensions": 37}), invalid, "wanted 1 to 36");
    refused(json!({"input": "a", "pooling": "max"}), invalid, "pooling");
    refused(json!({"input": vec!["a"; 2049]}), invalid, "2049 texts");
    refused(json!({"input": "a ".repeat(70)}), Code::ContextLengthExceeded, "72 tokens and the model takes 64");
    let whole = embed(&engine, json!({"input": "the cat"})).unwrap();
    let part = embed(&engine, json!({"input": "the cat", "dimensions": 10})).unwrap();
    assert_eq!((part.dimensions, part.values.len()), (10, 10));
    assert!((cosine(&part.values, &whole.values[..10]) - 1.0).abs() < 1e-6);
    assert!((part.values.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    // Special tokens are no text here.
    let plain = embed(&engine, json!({"input": "[MASK]"})).unwrap();
    assert!(plain.usage.prompt_tokens > 3);
    // More texts than fit one pass, and each as it is alone.
    let texts: Vec<String> = (0..90).map(|n| format!("the cat sat on mat {n}, {}", "a ".repeat(n % 30))).collect();
    let all = embed(&engine, json!({"input": texts})).unwrap();
    assert!(all.usage.prompt_tokens > 1024);
    for n in [0, 29, 44, 89] {
        let one = embed(&engine, json!({"input": texts[n]})).unwrap();
        check(&texts[n], &all.values[n * 36..][..36], &one.values);
    }
}

#[test]
fn an_encoder_makes_no_text_and_says_so() {
    let engine = folder(&golden().join("encoders/bert")).unwrap();
    let chat = ChatRequest::parse(json!({"messages": [{"role": "user", "content": "Hi"}]})).unwrap();
    let completion = CompletionRequest::parse(json!({"prompt": "Hi"})).unwrap();
    let errors = [
        engine.chat(chat).err().unwrap(),
        engine.complete(completion).err().unwrap(),
        pollster::block_on(engine.forward(&[2, 3])).err().unwrap(),
    ];
    for error in errors {
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("is an encoder"), "{error}");
    }
    // And goes on.
    assert!(embed(&engine, json!({"input": "the cat"})).is_ok());
}

#[test]
fn a_decoder_makes_vectors_only_where_its_files_say_how() {
    let path = golden().join("tiny_llama/tied-f32.gguf");
    let engine = file(&path).unwrap();
    assert!(engine.info().generates && !engine.info().embeds);
    let error = embed(&engine, json!({"input": "Hi"})).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains("pooling_type"), "{error}");

    let wanted = read(golden().join("encoders/decoder.json"));
    let path = golden().join("folders/llama_sharded_f16");
    for (pooling, mode) in [("mean", "mean_tokens"), ("last", "lasttoken")] {
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let names = std::fs::read_dir(&path).unwrap().map(name);
        let mut files: Vec<(String, Vec<u8>)> =
            names.map(|name| (name.clone(), std::fs::read(path.join(name)).unwrap())).collect();
        let config = format!(r#"{{"pooling_mode_{mode}": true}}"#);
        files.push(("1_Pooling/config.json".to_owned(), config.into_bytes()));
        for unfused_ops in [false, true] {
            let options = LoadOptions { unfused_ops, precision: Some(Precision::Exact), ..LoadOptions::default() };
            let folder = MemoryFolder::new(files.clone());
            let engine = pollster::block_on(Engine::load_from(&folder, None, &options, &mut |_| Ok(()))).unwrap();
            assert!(engine.info().generates && engine.info().embeds);
            let got = embed(&engine, json!({"input": wanted["ids"]})).unwrap();
            let wanted: Vec<Vec<f32>> = serde_json::from_value(wanted[pooling].clone()).unwrap();
            assert_eq!(got.values.len(), wanted.len() * got.dimensions);
            for (n, (got, wanted)) in got.values.chunks_exact(got.dimensions).zip(&wanted).enumerate() {
                check(&format!("{pooling} {n}, unfused: {unfused_ops}"), got, wanted);
            }
            // It generates as before.
            let request = CompletionRequest::parse(json!({"prompt": "Hi", "max_tokens": 3})).unwrap();
            let mut generation = engine.complete(request).unwrap();
            while pollster::block_on(generation.next()).unwrap().is_some() {}
        }
    }
}

/// sentence-transformers makes texts lower case where a model's files want it, whatever its tokenizer does.
#[test]
fn texts_are_made_lower_case_where_the_files_want_it() {
    let path = golden().join("encoders/xlm_roberta");
    let names = ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"];
    let with = |lower: bool| {
        let mut files: Vec<(String, Vec<u8>)> =
            names.iter().map(|name| ((*name).to_owned(), std::fs::read(path.join(name)).unwrap())).collect();
        let sentence = json!({"max_seq_length": 32, "do_lower_case": lower});
        files.push(("sentence_bert_config.json".to_owned(), sentence.to_string().into_bytes()));
        let folder = MemoryFolder::new(files);
        pollster::block_on(Engine::load_from(&folder, None, &LoadOptions::default(), &mut |_| Ok(()))).unwrap()
    };
    let (as_it_is, lower) = (with(false), with(true));
    let of = |engine: &Engine, text: &str| embed(engine, json!({"input": text})).unwrap().values;
    let (given, small) = ("THE CAT", "the cat");
    assert_ne!(of(&as_it_is, given), of(&as_it_is, small));
    assert_eq!(of(&lower, given), of(&as_it_is, small));
}

/// A safetensors file whose tensors have other names.
fn renamed(bytes: &[u8], name: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let header: serde_json::Map<String, Value> = header
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(old, value)| Some((if old == "__metadata__" { old.clone() } else { name(old)? }, value.clone())))
        .collect();
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[8 + length..]].concat()
}

/// As Qwen3-Embedding and other models are saved that have no head.
#[test]
fn decoders_that_were_saved_without_their_head_embed() {
    let path = golden().join("classifiers/qwen3_reranker");
    let load = |without_prefix: bool, tied: bool, pooling: Option<&str>| {
        let bytes = std::fs::read(path.join("model.safetensors")).unwrap();
        let bytes =
            if without_prefix { renamed(&bytes, |name| name.strip_prefix("model.").map(str::to_owned)) } else { bytes };
        let mut config = read(path.join("config.json"));
        config["tie_word_embeddings"] = json!(tied);
        let mut files = vec![
            ("model.safetensors".to_owned(), bytes),
            ("tokenizer.json".to_owned(), std::fs::read(path.join("tokenizer.json")).unwrap()),
            ("config.json".to_owned(), config.to_string().into_bytes()),
        ];
        if let Some(mode) = pooling {
            files.push(("1_Pooling/config.json".to_owned(), json!({"pooling_mode": mode}).to_string().into_bytes()));
        }
        let folder = MemoryFolder::new(files);
        pollster::block_on(Engine::load_from(&folder, None, &LoadOptions::default(), &mut |_| Ok(())))
    };
    let input = json!({"input": ["the cat", "a dog and a cat"]});
    let whole = load(false, true, Some("lasttoken")).unwrap();
    let wanted = embed(&whole, input.clone()).unwrap();
    for tied in [true, false] {
        let engine = load(true, tied, Some("lasttoken")).unwrap();
        // Without a matrix of its own for logits, which would be tied, it has none.
        assert_eq!((engine.info().generates, engine.info().embeds), (tied, true));
        assert_eq!(embed(&engine, input.clone()).unwrap().values, wanted.values);
        if !tied {
            let completion = CompletionRequest::parse(json!({"prompt": "Hi"})).unwrap();
            assert!(engine.complete(completion).err().unwrap().message().contains("no text"));
        }
    }
    assert_eq!(load(true, false, None).err().unwrap().code(), Code::MissingTensor);
    let max = embed(&load(true, true, Some("max")).unwrap(), input).unwrap();
    assert_ne!(max.values, wanted.values);
}

/// The first numbers of vectors, scaled to length 1 again, of a model with layers after its pooling too.
#[test]
fn cut_vectors_have_length_one() {
    for model in ["gemma_embedding", "modern_bert"] {
        let path = golden().join("encoders").join(model);
        let engine = folder(&path).unwrap();
        let input = json!({"input": "the cat sat"});
        let whole = embed(&engine, input).unwrap();
        let width = whole.dimensions;
        for dimensions in [1, 7, width - 1, width] {
            let part = embed(&engine, json!({"input": "the cat sat", "dimensions": dimensions})).unwrap();
            assert!((part.values.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
            assert!((cosine(&part.values, &whole.values[..dimensions]) - 1.0).abs() < 1e-6);
            let request = EmbeddingRequest::parse(json!({"input": "the cat sat", "dimensions": dimensions})).unwrap();
            let tensor = pollster::block_on(engine.embed_tensor(request)).unwrap();
            check(model, &pollster::block_on(tensor.readback()).unwrap(), &part.values);
        }
        let error = embed(&engine, json!({"input": "a", "dimensions": width + 1})).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
    }
}
