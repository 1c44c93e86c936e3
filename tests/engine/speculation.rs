//! Speculation on a native GPU: the text and tokens of plain greedy decoding, by fewer passes.

use std::path::{Path, PathBuf};

use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::{FileSource, MemorySource};
use rillm::engine::{Chunk, DeviceKind, Engine, FinishReason, KvFormat, LoadOptions, Precision};
use serde_json::{Value, json};

use crate::support::engines::exact_on_cpu;

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn load(path: &Path, options: &LoadOptions) -> Engine {
    pollster::block_on(Engine::load(&FileSource::open(path).unwrap(), &exact_on_cpu(options), &mut |_| Ok(()))).unwrap()
}

fn engine(name: &str) -> Engine {
    load(&golden().join(name), &LoadOptions::default())
}

#[derive(Debug, PartialEq)]
struct Answer {
    text: String,
    tokens: Vec<u32>,
    reason: FinishReason,
}

/// The answer, and how many tokens were drafted and accepted.
fn generate(engine: &Engine, request: &Value) -> (Answer, Option<(usize, usize)>) {
    let mut generation = engine.complete(CompletionRequest::parse(request.clone()).unwrap()).unwrap();
    let mut chunks: Vec<Chunk> = vec![];
    while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
        chunks.push(chunk);
    }
    let last = chunks.last().unwrap();
    let (usage, timings) = (last.usage.unwrap(), last.timings.unwrap());
    let answer = Answer {
        text: chunks.iter().map(|chunk| chunk.text.as_str()).collect(),
        tokens: chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect(),
        reason: last.finish_reason.unwrap(),
    };
    assert_eq!(usage.completion_tokens, answer.tokens.len());
    assert_eq!(timings.draft_tokens.is_some(), timings.accepted_draft_tokens.is_some());
    (answer, timings.draft_tokens.zip(timings.accepted_draft_tokens))
}

fn with(mut request: Value, more: Value) -> Value {
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn request(prompt: &[u32]) -> Value {
    json!({"prompt": prompt, "temperature": 0, "max_tokens": 60, "ignore_eos": true})
}

fn prompts() -> [Vec<u32>; 4] {
    [vec![7], (0..37).map(|i| i * i * 7 % 200).collect(), [11, 45, 78, 102, 34, 99].repeat(5), vec![42; 12]]
}

/// Each golden model and each prompt; more settings with some models.
#[test]
fn answers_are_those_of_plain_greedy() {
    let (mut models, mut all_accepted) = (0, 0);
    for folder in std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.extension().is_none_or(|extension| extension != "gguf") {
                continue;
            }
            models += 1;
            let name = path.file_name().unwrap().to_str().unwrap();
            // In the precision that most run at. There a prompt's last token is rounded otherwise when the rest of the prompt is
            // found in the cache, so what is compared finds it there.
            let engine = load(&path, &LoadOptions { precision: Some(Precision::Fast), ..Default::default() });
            let all_settings = name == "tied-q4_0.gguf";
            // With n-grams of one token there are many drafts, most of them wrong.
            let settings = [
                json!({"min_ngram": 1}),
                json!({}),
                json!({"max_tokens": 1}),
                json!({"max_tokens": 7, "min_ngram": 1}),
            ];
            let (mut drafted, mut accepted) = (0, 0);
            for prompt in prompts() {
                generate(&engine, &request(&prompt));
                let (wanted, none) = generate(&engine, &request(&prompt));
                assert_eq!(none, None);
                for setting in settings.iter().take(if all_settings { 4 } else { 1 }) {
                    let speculation = with(json!({"type": "prompt_lookup"}), setting.clone());
                    let asked = with(request(&prompt), json!({"speculation": speculation}));
                    let (answer, counts) = generate(&engine, &asked);
                    assert_eq!(answer, wanted, "{} {prompt:?} {setting}", path.display());
                    let (draft_tokens, accepted_tokens) = counts.unwrap();
                    assert!(accepted_tokens <= draft_tokens && accepted_tokens < wanted.tokens.len());
                    drafted += draft_tokens;
                    accepted += accepted_tokens;
                }
            }
            println!("{}: {accepted} of {drafted} accepted", path.display());
            all_accepted += accepted;
            assert!(drafted > accepted, "{}", path.display());
        }
    }
    assert!(models >= 4 && all_accepted > 0);
}

/// A prompt that the model answers by repeating itself, and that answer.
fn repetitive(engine: &Engine) -> (Vec<u32>, Answer) {
    let distinct = |answer: &Answer| answer.tokens[20..].iter().collect::<std::collections::BTreeSet<_>>().len();
    let candidates = (0..40u32).map(|start| {
        let prompt: Vec<u32> = (0..4).map(|i| (start * 31 + i * 17) % 250).collect();
        let answer = generate(engine, &request(&prompt)).0;
        (prompt, answer)
    });
    candidates.min_by_key(|(_, answer)| distinct(answer)).unwrap()
}

const LOOKUP: &str = r#"{"speculation": {"type": "prompt_lookup", "max_tokens": 7}}"#;

fn lookup() -> Value {
    serde_json::from_str(LOOKUP).unwrap()
}

#[test]
fn what_repeats_takes_fewer_passes_and_ends_where_it_should() {
    let engine = engine("tiny_llama/tied-q4_0.gguf");
    let (prompt, wanted) = repetitive(&engine);
    let asked = with(request(&prompt), lookup());
    let (answer, counts) = generate(&engine, &asked);
    assert_eq!(answer, wanted);
    let (drafted, accepted) = counts.unwrap();
    println!("{accepted} of {drafted} accepted: {:?}", wanted.tokens);
    assert!(accepted >= 20, "{accepted} of {drafted} accepted");

    // How many plain steps run before the first draft, and so how long the last one is, depends on how fast they are: warm with drafts
    // of every length.
    for length in 1..=7 {
        let draft = json!({"speculation": {"type": "prompt_lookup", "max_tokens": length}});
        assert_eq!(generate(&engine, &with(request(&prompt), draft)).0, wanted, "drafts of {length}");
    }
    // Warm, and counted: fewer dispatches and submits of the GPU, and no kernel is compiled.
    let counted = |request: &Value| {
        engine.reset_stats();
        assert_eq!(generate(&engine, request).0, wanted);
        engine.stats()
    };
    let (plain, speculative) = (counted(&request(&prompt)), counted(&asked));
    println!("dispatches {} and {}", plain.dispatches, speculative.dispatches);
    assert!(speculative.dispatches * 10 < plain.dispatches * 9, "{} of {}", speculative.dispatches, plain.dispatches);
    assert_eq!(speculative.pipelines_created, 0);

    // Any number of tokens.
    for max_tokens in [1, 2, 3, 25, 26, 27, 28, 29, 30, 31] {
        let limit = json!({"max_tokens": max_tokens});
        let plain = generate(&engine, &with(request(&prompt), limit.clone())).0;
        assert_eq!((plain.tokens.len(), plain.reason), (max_tokens, FinishReason::Length));
        assert_eq!(generate(&engine, &with(asked.clone(), limit)).0, plain);
    }

    // A stop string in the middle of what is accepted at once.
    let characters: Vec<char> = wanted.text.chars().collect();
    for start in [2, characters.len() / 2, characters.len() - 4] {
        let stop = json!({"stop": [characters[start..start + 2].iter().collect::<String>()]});
        let plain = generate(&engine, &with(request(&prompt), stop.clone())).0;
        assert_eq!(plain.reason, FinishReason::Stop);
        assert_eq!(generate(&engine, &with(asked.clone(), stop)).0, plain, "from {start}");
    }

    // The cache holds what it says: the conversation goes on, and comes back to its beginning.
    let more: Vec<u32> = prompt.iter().chain(&wanted.tokens).copied().chain([3, 1, 4]).collect();
    let fresh = self::engine("tiny_llama/tied-q4_0.gguf");
    let plain = generate(&fresh, &request(&more)).0;
    for request in [with(request(&more), lookup()), request(&more)] {
        generate(&engine, &asked);
        assert_eq!(generate(&engine, &request).0, plain);
    }

    // Cancelled in the middle, and then again from the start.
    let mut generation = engine.complete(CompletionRequest::parse(asked.clone()).unwrap()).unwrap();
    for _ in 0..6 {
        pollster::block_on(generation.next()).unwrap().unwrap();
    }
    generation.cancel();
    let last = pollster::block_on(generation.next()).unwrap().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::Cancelled));
    drop(generation);
    assert_eq!(generate(&engine, &request(&more)).0, plain);
    // Dropped in the middle.
    let mut generation = engine.complete(CompletionRequest::parse(asked).unwrap()).unwrap();
    for _ in 0..6 {
        pollster::block_on(generation.next()).unwrap().unwrap();
    }
    drop(generation);
    assert_eq!(generate(&engine, &request(&more)).0, plain);
}

/// Neither is passed by a draft.
#[test]
fn the_end_of_the_context_and_of_the_turn_end_it() {
    let prompt = [11, 45, 78, 102, 34, 99].repeat(4);
    for context_length in 26..36 {
        let options = LoadOptions { context_length: Some(context_length), ..Default::default() };
        let engine = load(&golden().join("tiny_llama/tied-q8_0.gguf"), &options);
        let plain = json!({"prompt": prompt, "temperature": 0, "ignore_eos": true});
        let (wanted, _) = generate(&engine, &plain);
        assert_eq!((wanted.tokens.len(), wanted.reason), (context_length - prompt.len(), FinishReason::Length));
        let request = with(plain, json!({"speculation": {"type": "prompt_lookup", "max_tokens": 7, "min_ngram": 1}}));
        // Twice: the second finds its prompt in the cache.
        assert_eq!(generate(&engine, &request).0, wanted, "{context_length}");
        assert_eq!(generate(&engine, &request).0, wanted, "{context_length}");
    }
    // The same model with another token as its end of text, one in the middle of an answer. Not every token can be: some are
    // what others are merged from.
    let path = golden().join("tiny_llama/tied-q8_0.gguf");
    let unending = load(&path, &LoadOptions::default());
    let original = std::fs::read(path).unwrap();
    let key = b"tokenizer.ggml.eos_token_id";
    let value = original.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    let (start, answer, end, engine) = (1..100)
        .find_map(|start| {
            let answer = generate(&unending, &request(&[start])).0.tokens;
            (12..40).filter(|at| !answer[..*at].contains(&answer[*at])).find_map(|at| {
                let mut bytes = original.clone();
                bytes[value..value + 4].copy_from_slice(&answer[at].to_le_bytes());
                let source = MemorySource::new(bytes);
                let engine =
                    pollster::block_on(Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(())));
                Some((start, answer.clone(), answer[at], engine.ok()?))
            })
        })
        .unwrap();
    let plain = json!({"prompt": [start], "temperature": 0, "max_tokens": 60});
    let (wanted, _) = generate(&engine, &plain);
    assert_eq!((wanted.reason, wanted.tokens.last()), (FinishReason::Stop, Some(&end)));
    let speculation = json!({"speculation": {"type": "prompt_lookup", "max_tokens": 7, "min_ngram": 1}});
    assert_eq!(generate(&engine, &with(plain, speculation.clone())).0, wanted);
    // In a prompt that holds that answer, and the beginning of it again.
    let prompt: Vec<u32> = [&[start], &answer[..], &[start], &answer[..4]].concat();
    let plain = json!({"prompt": prompt, "temperature": 0, "max_tokens": 60});
    let (wanted, _) = generate(&engine, &plain);
    assert_eq!(generate(&engine, &with(plain, speculation)).0, wanted);
}

/// Logits [tokens, vocabulary].
fn logits(engine: &Engine, ids: &[u32]) -> Vec<f32> {
    pollster::block_on(async { engine.forward(ids).await?.readback().await }).unwrap()
}

/// A pass over few tokens takes kernels of its own, on GPUs the same ones in both precisions, and gives what a pass over many gives.
#[test]
fn few_tokens_give_what_many_give() {
    for name in ["tiny_llama/tied-f16.gguf", "tiny_llama/untied-q8_0.gguf", "tiny_qwen2/untied-q4_0.gguf"] {
        let of = |precision| {
            let kv_cache = Some(KvFormat::F32);
            load(&golden().join(name), &LoadOptions { precision: Some(precision), kv_cache, ..Default::default() })
        };
        let (exact, fast) = (of(Precision::Exact), of(Precision::Fast));
        let prompt: Vec<u32> = (0..40).map(|i| i * i * 7 % 200).collect();
        let is_on_cpu = fast.info().device == DeviceKind::Cpu;
        let all = [&exact, &fast].map(|engine| logits(engine, &prompt));
        let columns = all[0].len() / prompt.len();
        for tokens in 2..=8 {
            let few = [&exact, &fast].map(|engine| logits(engine, &prompt[..tokens]));
            // On GPUs few tokens are exact in both precisions.
            for at in if is_on_cpu { 0..2 } else { 0..1 } {
                let wanted = &all[at][..tokens * columns];
                let difference: f64 = few[at].iter().zip(wanted).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                let norm: f64 = wanted.iter().map(|b| f64::from(*b).powi(2)).sum();
                // Written so that NaN fails.
                assert!((difference / norm).sqrt() < 1e-5, "{name} {tokens}: {:.2e}", (difference / norm).sqrt());
            }
            assert_eq!(few[0] == few[1], !is_on_cpu || name.ends_with("f16.gguf"), "{name} {tokens}");
        }
        let before = exact.stats().dispatches;
        logits(&exact, &prompt[..6]);
        let dispatches = exact.stats().dispatches - before;
        assert_eq!(dispatches, 10 * exact.info().layers as u64 + 3, "{name}");
    }
}

#[test]
fn what_can_not_be_had_is_refused_by_name() {
    let engine = engine("tiny_llama/tied-q8_0.gguf");
    for (more, word) in [
        (json!({"temperature": 0.5}), "temperature"),
        (json!({"temperature": null}), "temperature"),
        (json!({"speculation": {"type": "prompt_lookup", "max_tokens": 8}}), "speculation.max_tokens"),
        (json!({"speculation": {"type": "prompt_lookup", "min_ngram": 0}}), "speculation.min_ngram"),
        (json!({"speculation": {"type": "prompt_lookup", "max_token": 3}}), "max_token"),
        (json!({"speculation": {"type": "draft_model"}}), "draft_model"),
        (json!({"speculation": {"max_tokens": 3}}), "type"),
        (json!({"speculation": true}), "speculation"),
    ] {
        let request = with(with(request(&[1, 2]), lookup()), more);
        let error =
            CompletionRequest::parse(request.clone()).and_then(|request| engine.complete(request)).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest, "{request}");
        assert!(error.message().contains(word), "{request}: {error}");
    }
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    let mut bytes = std::fs::read(golden().join("tiny_llama/tied-f32.gguf")).unwrap();
    // The last weight of the last tensor, which every logit depends on.
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    let source = MemorySource::new(bytes);
    let engine =
        pollster::block_on(Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(()))).unwrap();
    let request = with(request(&[5, 6, 5, 6, 5]), lookup());
    let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
    assert_eq!(pollster::block_on(generation.next()).unwrap_err().code(), Code::NumericalError);
}
