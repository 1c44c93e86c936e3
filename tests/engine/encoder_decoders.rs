//! Encoder-decoders against transformers: tiny models as folders and as GGUF (`scripts/golden/encoder_decoders.py`), and what requests to them
//! may ask for.

use std::path::{Path, PathBuf};

use crate::support::engines::exact_on_cpu;
use crate::support::files::golden;
use futures_util::FutureExt;
use futures_util::future::join_all;
use rillm::engine::request::{ChatRequest, CompletionRequest, EmbeddingRequest};
use rillm::engine::source::FileSource;
use rillm::engine::{
    Chunk, Engine, FinishReason, Generation, LoadOptions, Replay, ReplayedChoice, Smoothness, inspect,
};
use rillm::model::folder::{DirectoryFolder, MemoryFolder};
use rillm::model::{KvFormat, Precision};
use rillm::native::with_grammars;
use rillm::{Code, Error, Result};
use serde_json::{Value, json};

const TOLERANCE: f64 = 1e-4;
/// Keys and values are rounded, of the text and of the answer.
const F16_TOLERANCE: f64 = 2e-2;

struct Case {
    text: String,
    source: Vec<u32>,
    ids: Vec<u32>,
    greedy: Vec<u32>,
    answer: String,
    /// [ids, vocabulary]
    logits: Vec<f32>,
}

fn folder_of(model: &str) -> PathBuf {
    golden("encoder_decoders").join(model)
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// What a request says besides its prompt, such as the language to translate to.
fn fields(model: &str) -> Value {
    match read(&folder_of(model).join("golden.json")).get("forced") {
        Some(Value::String(token)) => json!({"forced_bos_token_id": token}),
        _ => json!({}),
    }
}

fn cases(model: &str) -> Vec<Case> {
    let answers = read(&folder_of(model).join("golden.json"));
    let bytes = std::fs::read(folder_of(model).join("logits.npy")).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let logits: Vec<f32> =
        bytes[header..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let all = answers["cases"].as_array().unwrap();
    let of_case = logits.len() / all.len();
    let case = |(case, logits): (&Value, &[f32])| {
        let ids = |key: &str| serde_json::from_value::<Vec<u32>>(case[key].clone()).unwrap();
        let text = |key: &str| case[key].as_str().unwrap().to_owned();
        Case {
            text: text("text"),
            source: ids("source"),
            ids: ids("ids"),
            greedy: ids("greedy"),
            answer: text("answer"),
            logits: logits.to_vec(),
        }
    };
    all.iter().zip(logits.chunks_exact(of_case)).map(case).collect()
}

fn models() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(golden("encoder_decoders"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 1);
    names
}

fn load_folder(model: &str, options: &LoadOptions) -> Engine {
    // The folder may hold the GGUF file too.
    let folder = DirectoryFolder::new(folder_of(model));
    pollster::block_on(Engine::load_from(&folder, Some("model.safetensors"), options, &mut |_| Ok(()))).unwrap()
}

fn load_gguf(model: &str, options: &LoadOptions) -> Engine {
    let source = FileSource::open(folder_of(model).join("model.gguf")).unwrap();
    pollster::block_on(Engine::load(&source, &exact_on_cpu(options), &mut |_| Ok(()))).unwrap()
}

/// A folder with another configuration, and tensors of other names.
#[track_caller]
fn changed(model: &str, change: &dyn Fn(&mut Value), renamed: &[(&str, &str)]) -> Result<Engine> {
    let path = folder_of(model);
    let mut config = read(&path.join("config.json"));
    change(&mut config);
    let mut weights = std::fs::read(path.join("model.safetensors")).unwrap();
    if !renamed.is_empty() {
        let length = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
        let mut header = String::from_utf8(weights[8..8 + length].to_vec()).unwrap();
        for (from, to) in renamed {
            assert!(header.contains(from));
            header = header.replace(from, to);
        }
        let data = weights.split_off(8 + length);
        weights = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    }
    let mut files =
        vec![("model.safetensors".to_owned(), weights), ("config.json".to_owned(), config.to_string().into_bytes())];
    for name in ["tokenizer.json", "source.spm", "vocab.json"] {
        files.extend(std::fs::read(path.join(name)).ok().map(|bytes| (name.to_owned(), bytes)));
    }
    pollster::block_on(Engine::load_from(&MemoryFolder::new(files), None, &LoadOptions::default(), &mut |_| Ok(())))
}

/// ‖a − b‖ / ‖b‖ of the worst row.
#[track_caller]
fn worst_row(a: &[f32], b: &[f32], columns: usize) -> f64 {
    assert_eq!(a.len(), b.len());
    let error = |(a, b): (&[f32], &[f32])| {
        let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        (difference / b.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
    };
    let errors = a.chunks_exact(columns).zip(b.chunks_exact(columns)).map(error);
    errors.fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
}

fn logits(engine: &Engine, case: &Case) -> Vec<f32> {
    let logits = pollster::block_on(engine.forward_after(&case.source, &case.ids)).unwrap();
    pollster::block_on(logits.readback()).unwrap()
}

fn start(engine: &Engine, request: &Value) -> Result<Generation> {
    engine.complete(CompletionRequest::parse(request.clone())?)
}

async fn rest(generation: &mut Generation) -> Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn run(engine: &Engine, request: &Value) -> Result<Vec<Chunk>> {
    pollster::block_on(rest(&mut start(engine, request)?))
}

/// The text, the tokens and the end of one of the choices.
fn choice(chunks: &[Chunk], index: usize) -> (String, Vec<u32>, Option<FinishReason>) {
    let own = || chunks.iter().filter(|chunk| chunk.index == index);
    let text = own().map(|chunk| chunk.text.as_str()).collect();
    (text, own().flat_map(|chunk| chunk.token_ids.clone()).collect(), own().next_back().unwrap().finish_reason)
}

fn answer(engine: &Engine, request: &Value) -> (String, Vec<u32>, Option<FinishReason>) {
    choice(&run(engine, request).unwrap(), 0)
}

fn asked(prompt: impl Into<Value>, more: Value) -> Value {
    let mut request = json!({"prompt": prompt.into(), "max_tokens": 32, "temperature": 0, "ignore_eos": true});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

#[test]
fn logits_and_answers_are_those_of_transformers() {
    for model in models() {
        let exact = LoadOptions { precision: Some(Precision::Exact), ..Default::default() };
        let f16 = LoadOptions { kv_cache: Some(KvFormat::F16), ..exact.clone() };
        let mut engines =
            vec![("folder", load_folder(&model, &exact), TOLERANCE), ("f16", load_folder(&model, &f16), F16_TOLERANCE)];
        if folder_of(&model).join("model.gguf").exists() {
            engines.push(("GGUF", load_gguf(&model, &exact), TOLERANCE));
        }
        for (what, engine, tolerance) in engines {
            let columns = engine.info().vocab_size;
            for case in cases(&model) {
                let what = format!("{model}, {what}, {:?}", case.text);
                let error = worst_row(&logits(&engine, &case), &case.logits, columns);
                println!("{what}: {error:.1e}");
                assert!(error <= tolerance, "{what}: relative error {error:.2e}");

                let chunks = run(&engine, &asked(case.text.as_str(), fields(&model))).unwrap();
                let (text, tokens, reason) = choice(&chunks, 0);
                assert_eq!(tokens, case.greedy, "{what}");
                assert_eq!((text.as_str(), reason), (case.answer.as_str(), Some(FinishReason::Length)), "{what}");
                let usage = chunks.last().unwrap().usage.unwrap();
                assert_eq!((usage.prompt_tokens, usage.completion_tokens), (case.source.len(), 32), "{what}");
                assert_eq!(usage.prompt_tokens_details.cached_tokens, 0, "{what}");
                // The same by its ids.
                assert_eq!(answer(&engine, &asked(case.source.clone(), fields(&model))).1, case.greedy, "{what}");
            }
            let info = engine.info();
            assert!(info.generates && !info.embeds && !info.reranks && info.warnings.is_empty(), "{:?}", info.warnings);
            assert_eq!(info.context_length, 64);
        }
    }
}

/// What the files ban stays banned beside what a request bans, but for the end of the answer.
#[test]
fn bad_words_of_the_files_are_not_in_answers() {
    let [case, _] = &cases("marian")[..] else { panic!("two cases") };
    let with = |words: Value| changed("marian", &|config| config["bad_words_ids"] = words.clone(), &[]).unwrap();
    let (pad, ends) = (72, json!({"ignore_eos": false, "logit_bias": {"0": 100}}));
    let free = with(json!(null));
    let tokens = answer(&free, &asked(case.text.as_str(), json!({}))).1;
    assert_eq!(tokens[0], pad, "the model prefers what is to be banned");
    let engine = with(json!([[pad], case.greedy[..1], [0]]));
    for more in [json!({}), json!({"bad_words": ["cat"]}), json!({"temperature": 1, "seed": 3, "n": 2})] {
        let chunks = run(&engine, &asked(case.text.as_str(), more)).unwrap();
        let tokens: Vec<u32> = chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect();
        assert!(!tokens.is_empty() && tokens.iter().all(|id| *id != pad && *id != case.greedy[0]), "{tokens:?}");
    }
    assert_eq!(answer(&engine, &asked(case.text.as_str(), ends)).1, [0]);
}

/// The token of the language beside a prompt is that of the request.
#[test]
fn the_language_of_a_prompt_can_be_named() {
    let engine = load_folder("nllb", &LoadOptions::default());
    let [case, _] = &cases("nllb")[..] else { panic!("two cases") };
    let of = |language: &str| engine.tokenizer().token_id(language).unwrap();
    let mut french = case.source.clone();
    assert_eq!(french[0], of("eng_Latn"));
    french[0] = of("fra_Latn");
    let named = |language: &str| {
        let request = json!({"src_lang": language, "forced_bos_token_id": "deu_Latn", "logprobs": 0});
        let chunks = run(&engine, &asked(case.text.as_str(), request)).unwrap();
        let logprobs: Vec<f32> =
            chunks.iter().flat_map(|chunk| chunk.logprobs.iter().flatten()).map(|of| of.token.logprob).collect();
        assert_eq!(chunks.last().unwrap().usage.unwrap().prompt_tokens, french.len());
        (choice(&chunks, 0).1, logprobs)
    };
    let by_ids = json!({"forced_bos_token_id": "deu_Latn", "logprobs": 0});
    let chunks = run(&engine, &asked(french.clone(), by_ids)).unwrap();
    let wanted: Vec<f32> =
        chunks.iter().flat_map(|chunk| chunk.logprobs.iter().flatten()).map(|of| of.token.logprob).collect();
    assert_eq!(named("fra_Latn"), (choice(&chunks, 0).1, wanted));
    assert_eq!(named("eng_Latn").0, case.greedy);
    assert_ne!(named("eng_Latn").1, named("fra_Latn").1);
    let refused = |engine: &Engine, prompt: Value, language: &str, words: &str| {
        let error = start(engine, &asked(prompt, json!({"src_lang": language}))).err().unwrap();
        assert!(error.code() == Code::InvalidRequest && error.message().contains("src_lang"), "{error}");
        assert!(error.message().contains(words), "{error}");
    };
    for language in ["spa_Latn", "", "</s>", "<s>", "<unk>", "▁das", "s", "fra_Latn "] {
        refused(&engine, json!("a dog"), language, "eng_Latn");
    }
    refused(&engine, json!([5]), "fra_Latn", "token ids");
    for other in ["flan_t5", "bart", "marian"] {
        refused(&load_folder(other, &LoadOptions::default()), json!("a dog"), "fra_Latn", "no language");
    }
}

/// Each at once with others as alone, greedy and sampled; choices with the seeds that follow each other.
#[test]
fn several_at_once_are_those_of_each_alone() {
    let engine = load_folder("flan_t5", &LoadOptions { max_sequences: Some(4), ..Default::default() });
    let prompts =
        ["the cat sat", "a dog sings of the sea: ing", "s", "translate the sea, the mat and the dog: 0123456789"];
    let requests: Vec<Value> = prompts
        .iter()
        .enumerate()
        .map(|(at, prompt)| asked(*prompt, json!({"temperature": at % 2, "seed": 7, "max_tokens": 12 + 9 * at})))
        .collect();
    let alone: Vec<_> = requests.iter().map(|request| answer(&engine, request)).collect();
    for _ in 0..2 {
        let together = requests.iter().map(|request| async { rest(&mut start(&engine, request).unwrap()).await });
        for (at, got) in pollster::block_on(join_all(together)).into_iter().enumerate() {
            assert_eq!(choice(&got.unwrap(), 0), alone[at], "request {at}");
        }
    }
    // The encoder reads the prompt once for three choices, and again where a fifth and sixth wait for a slot.
    let request = |seed: usize, n: usize| asked(prompts[1], json!({"temperature": 1.3, "seed": seed, "n": n}));
    let singles: Vec<_> = (0..6).map(|at| answer(&engine, &request(20 + at, 1))).collect();
    assert!(singles.iter().any(|single| *single != singles[0]));
    for n in [3, 6] {
        let chunks = run(&engine, &request(20, n)).unwrap();
        for (at, single) in singles.iter().take(n).enumerate() {
            assert_eq!(choice(&chunks, at), *single, "choice {at} of {n}");
        }
        let usage = chunks.iter().rev().find_map(|chunk| chunk.usage).unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (engine.tokenizer().encode(prompts[1], true, true).unwrap().len(), 32 * n)
        );
    }
}

/// What decoding can do it does for an encoder-decoder too.
#[test]
fn an_answer_can_be_cut_held_and_taken_up() {
    let engine = with_grammars(load_gguf("flan_t5", &LoadOptions { max_sequences: Some(2), ..Default::default() }));
    let [case, _] = &cases("flan_t5")[..] else { panic!("two cases") };
    let prompt = case.text.as_str();
    let (text, tokens, _) = answer(&engine, &asked(prompt, json!({})));
    assert_eq!(tokens, case.greedy);

    // The first token can be given, by its text or its id, and is none of the answer's.
    let given = |token: Value| answer(&engine, &asked(prompt, json!({"forced_bos_token_id": token}))).1;
    let das = engine.tokenizer().token_id("▁das").unwrap();
    let after = pollster::block_on(engine.forward_after(&case.source, &[0, das])).unwrap();
    let after = pollster::block_on(after.readback()).unwrap();
    let last = &after[engine.info().vocab_size..];
    let best = last.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32;
    assert_eq!((given(json!(das))[0], given(json!("▁das"))), (best, given(json!(das))));
    for unknown in [json!("das Haus"), json!(""), json!(engine.info().vocab_size)] {
        let error = start(&engine, &asked(prompt, json!({"forced_bos_token_id": unknown}))).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("forced_bos_token_id"), "{error}");
    }

    // A stop string, and the model's own end.
    let stop: String = text.chars().skip(4).take(2).collect();
    let (cut, _, reason) = answer(&engine, &asked(prompt, json!({"stop": [stop]})));
    assert_eq!((cut.as_str(), reason), (text.split_once(&stop).unwrap().0, Some(FinishReason::Stop)));
    let (_, ended, reason) = answer(&engine, &asked(prompt, json!({"ignore_eos": false, "logit_bias": {"1": 100}})));
    assert_eq!((ended, reason), (vec![1], Some(FinishReason::Stop)));
    assert_eq!(answer(&engine, &asked(prompt, json!({"max_tokens": 1}))).1, case.greedy[..1]);
    // As long as the context has room after the start token.
    let (_, all, reason) = answer(&engine, &asked(prompt, json!({"max_tokens": null})));
    assert_eq!((all.len(), reason), (63, Some(FinishReason::Length)));

    // Log probabilities of the greedy tokens are the largest.
    let chunks = run(&engine, &asked(prompt, json!({"logprobs": 2}))).unwrap();
    let logprobs: Vec<_> = chunks.iter().flat_map(|chunk| chunk.logprobs.clone().unwrap()).collect();
    assert_eq!(logprobs.len(), 32);
    let first = &case.logits[..engine.info().vocab_size];
    let largest = first.iter().copied().fold(f32::MIN, f32::max);
    let wanted = f64::from(largest) - first.iter().map(|logit| f64::from(*logit).exp()).sum::<f64>().ln();
    assert!((f64::from(logprobs[0].token.logprob) - wanted).abs() < 1e-3, "{wanted}: {:?}", logprobs[0]);

    // Grammars hold the decoder.
    let held =
        |outputs: Value| answer(&engine, &asked(prompt, json!({"ignore_eos": false, "structured_outputs": outputs})));
    let (chosen, _, reason) = held(json!({"choice": ["das Haus", "das is en"]}));
    assert!(["das Haus", "das is en"].contains(&chosen.as_str()), "{chosen:?}");
    assert_eq!(reason, Some(FinishReason::Stop));
    let (object, ..) = held(
        json!({"json": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"],
        "additionalProperties": false}}),
    );
    assert!(serde_json::from_str::<Value>(&object).is_ok_and(|object| object["a"].is_i64()), "{object:?}");

    // Taken up again after a lost device, with some of it known.
    for known in [0, 1, 9, 31, 32] {
        let known = ReplayedChoice { tokens: case.greedy[..known].to_vec(), is_finished: known == 32 };
        let generation = start(&engine, &asked(prompt, json!({}))).unwrap();
        let mut generation = generation.with_replay(Replay { seed: 3, choices: vec![known] }).unwrap();
        assert_eq!(choice(&pollster::block_on(rest(&mut generation)).unwrap(), 0).1, case.greedy);
    }

    // Cancelled before the encoder, and in the middle. The engine goes on.
    let generation = &mut start(&engine, &asked(prompt, json!({}))).unwrap();
    generation.cancel();
    let chunks = pollster::block_on(rest(generation)).unwrap();
    assert_eq!(choice(&chunks, 0), (String::new(), vec![], Some(FinishReason::Cancelled)));
    let generation = &mut start(&engine, &asked(prompt, json!({}))).unwrap();
    let first = pollster::block_on(generation.next()).unwrap().unwrap();
    generation.cancel();
    let chunks = pollster::block_on(rest(generation)).unwrap();
    assert_eq!(chunks.last().unwrap().finish_reason, Some(FinishReason::Cancelled));
    assert!(!first.token_ids.is_empty());
    assert_eq!(answer(&engine, &asked(prompt, json!({}))).1, case.greedy);

    // In pieces between the frames of a page, and cancelled before and after the encoder's.
    engine.set_smoothness(Smoothness::Frames);
    assert_eq!(answer(&engine, &asked(prompt, json!({}))).1, case.greedy);
    for polls in [0, 1, 2, 3] {
        let generation = &mut start(&engine, &asked(prompt, json!({}))).unwrap();
        for _ in 0..polls {
            let _ = generation.next().now_or_never();
        }
        generation.cancel();
        let chunks = pollster::block_on(rest(generation)).unwrap();
        assert!(chunks.last().is_none_or(|last| last.finish_reason == Some(FinishReason::Cancelled)));
    }
    assert_eq!(answer(&engine, &asked(prompt, json!({}))).1, case.greedy);
}

#[test]
fn what_an_encoder_decoder_can_not_do_is_refused() {
    let engine = load_gguf("flan_t5", &LoadOptions::default());
    let refused = |request: Value| -> Error {
        match start(&engine, &request) {
            Ok(mut generation) => pollster::block_on(rest(&mut generation)).unwrap_err(),
            Err(error) => error,
        }
    };
    let is = |error: Error, code: Code, words: &[&str]| {
        assert_eq!(error.code(), code, "{error}");
        for word in words {
            assert!(error.message().contains(word), "{word}: {error}");
        }
    };
    is(refused(asked(json!([]), json!({}))), Code::InvalidRequest, &["no tokens"]);
    is(refused(asked(json!(vec![5; 65]), json!({}))), Code::ContextLengthExceeded, &["65 tokens", "holds 64"]);
    is(refused(asked(json!([5, 79]), json!({}))), Code::InvalidRequest, &["token id 79", "below 79"]);
    let drafts = json!({"speculation": {"type": "prompt_lookup"}});
    is(refused(asked("a dog", drafts)), Code::InvalidRequest, &["speculation", "encoder"]);
    is(refused(asked("a dog", json!({"context_shift": true}))), Code::InvalidRequest, &["context_shift", "encoder"]);
    let chat = json!({"messages": [{"role": "user", "content": "?"}]});
    let error = engine.chat(ChatRequest::parse(chat.clone()).unwrap()).err().unwrap();
    is(error, Code::InvalidRequest, &["encoder", "completions"]);
    let session = pollster::block_on(engine.save_session(&chat, None, &mut |_| Ok(())));
    is(session.unwrap_err(), Code::InvalidRequest, &["encoder"]);
    is(pollster::block_on(engine.forward(&[0, 5])).err().unwrap(), Code::InvalidRequest, &["encoder", "completions"]);
    let embed = EmbeddingRequest::parse(json!({"input": "a dog"})).unwrap();
    assert_eq!(pollster::block_on(engine.embed(embed)).unwrap_err().code(), Code::InvalidRequest);
    // The longest prompt, the shortest one, and the empty text, of which the end remains.
    for prompt in [json!(vec![5; 64]), json!([5]), json!("")] {
        assert_eq!(answer(&engine, &asked(prompt, json!({"max_tokens": 3}))).1.len(), 3);
    }
    let draft = FileSource::open(golden("tiny_llama/tied-f32.gguf")).unwrap();
    let draft = rillm::model::folder::OneFile(&draft);
    let error = pollster::block_on(engine.with_draft(&draft, None, &mut |_| Ok(()))).err().unwrap();
    is(error, Code::InvalidRequest, &["encoder", "draft"]);
}

#[test]
fn configurations_of_every_version_are_read_and_others_refused() {
    let [case, _] = &cases("flan_t5")[..] else { panic!("two cases") };
    let agrees = |engine: Engine| {
        let error = worst_row(&logits(&engine, case), &case.logits, engine.info().vocab_size);
        assert!(error < F16_TOLERANCE, "relative error {error:.2e}");
    };
    // transformers 5 says that matrices are tied, and holds both.
    agrees(
        changed(
            "flan_t5",
            &|config| {
                config["tie_word_embeddings"] = json!(true);
                config["scale_decoder_outputs"] = json!(false);
            },
            &[],
        )
        .unwrap(),
    );
    // The shared table has the name of one of the halves.
    for name in ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"] {
        agrees(changed("flan_t5", &|_| {}, &[("\"shared.weight\"", &format!("\"{name}\""))]).unwrap());
    }
    let refusal = |change: &dyn Fn(&mut Value), renamed: &[(&str, &str)]| {
        let error = changed("flan_t5", change, renamed).err().unwrap();
        (error.code(), error.message().to_owned())
    };
    let of_key = |key: &'static str, value: Value| refusal(&|config| config[key] = value.clone(), &[]);
    for (key, value, code) in [
        ("feed_forward_proj", json!("gated-silu"), Code::UnsupportedArchitecture),
        ("feed_forward_proj", json!("relu"), Code::UnsupportedArchitecture),
        ("is_encoder_decoder", json!(false), Code::UnsupportedArchitecture),
        ("decoder_start_token_id", json!(null), Code::InvalidMetadata),
        ("decoder_start_token_id", json!(79), Code::InvalidMetadata),
        ("relative_attention_num_buckets", json!(9), Code::ShapeMismatch),
        ("relative_attention_max_distance", json!(2), Code::InvalidMetadata),
        ("num_decoder_layers", json!(2), Code::MissingTensor),
        ("num_layers", json!(1), Code::UnsupportedArchitecture),
        ("d_kv", json!(8), Code::ShapeMismatch),
    ] {
        let (found, message) = of_key(key, value.clone());
        assert_eq!(found, code, "{key}: {value}: {message}");
    }
    let (code, message) = refusal(
        &|_| {},
        &[("decoder.block.0.layer.1.EncDecAttention.k.", "decoder.block.0.layer.1.EncDecAttention.z.")],
    );
    assert!(code == Code::MissingTensor && message.contains("cross_attn_k"), "{message}");
    let (code, message) = refusal(&|_| {}, &[("encoder.final_layer_norm.", "encoder.finale_layer_norm.")]);
    assert!(code == Code::MissingTensor && message.contains("output_norm"), "{message}");

    for (model, key, value, code) in [
        ("bart", "normalize_before", json!(true), Code::UnsupportedArchitecture),
        ("bart", "activation_function", json!("swish"), Code::UnsupportedArchitecture),
        ("bart", "max_position_embeddings", json!(60), Code::ShapeMismatch),
        ("bart", "encoder_attention_heads", json!(5), Code::InvalidMetadata),
        ("mbart", "scale_embedding", json!("yes"), Code::InvalidMetadata),
        ("nllb", "pad_token_id", json!(0), Code::UnsupportedArchitecture),
        ("nllb", "max_position_embeddings", json!(1u64 << 27), Code::InvalidMetadata),
        ("marian", "activation_function", json!("gelu_new"), Code::UnsupportedArchitecture),
        ("marian", "share_encoder_decoder_embeddings", json!(false), Code::UnsupportedArchitecture),
        ("marian", "static_position_embeddings", json!(false), Code::UnsupportedArchitecture),
        ("marian", "normalize_embedding", json!(true), Code::UnsupportedArchitecture),
        ("marian", "bad_words_ids", json!([72]), Code::InvalidMetadata),
        ("marian", "bad_words_ids", json!([[72], []]), Code::InvalidMetadata),
        ("marian", "bad_words_ids", json!([[73]]), Code::InvalidMetadata),
        ("marian", "forced_bos_token_id", json!(73), Code::InvalidMetadata),
    ] {
        let error = changed(model, &|config| config[key] = value.clone(), &[]).err().unwrap();
        assert_eq!(error.code(), code, "{model}, {key}: {value}: {error}");
    }

    // What an inspection tells is what a load takes.
    let said = pollster::block_on(inspect(
        &DirectoryFolder::new(folder_of("t5")),
        Some("model.safetensors"),
        &LoadOptions::default(),
    ))
    .unwrap();
    let engine = load_folder("t5", &LoadOptions::default());
    assert!(said.problem.is_none() && said.warnings.is_empty(), "{:?}", said.problem);
    assert_eq!(said.weight_bytes, Some(engine.info().weight_bytes));
    assert_eq!(said.kv_cache_bytes, Some(engine.info().kv_cache_bytes));
    assert_eq!((said.layers, engine.info().layers), (Some(2), 2));
    assert!(engine.info().weight_bytes_per_token < engine.info().weight_bytes);
}
