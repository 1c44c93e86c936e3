//! Multi-token prediction: a model's own head drafts, and the answer is that of plain greedy decoding. How many drafts are right is told by a
//! reference in numpy (`scripts/golden/multi_token_prediction.py`), to the token.

use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::{FileSource, MemorySource};
use rillm::engine::{Engine, Generation, Inspection, LoadOptions, inspect};
use rillm::model::folder::{DirectoryFolder, MemoryFolder, OneFile};
use rillm::model::{KvFormat, Precision};
use rillm::native::with_grammars;
use serde_json::{Value, json};

use crate::recurrent::{request, start, what_one_engine_saves_another_restores};
use crate::support::engines::load;
use crate::support::errors::check_error;
use crate::support::files::golden;

/// Dense: the ops of its layers are fused, and requests that run at once share steps.
const DENSE: &str = "qwen3_5";
/// With experts: one op at a time.
const WITH_EXPERTS: &str = "qwen3_next";

fn options(max_sequences: usize) -> LoadOptions {
    LoadOptions {
        multi_token_prediction: true,
        max_sequences: Some(max_sequences),
        precision: Some(Precision::Exact),
        kv_cache: Some(KvFormat::F32),
        ..Default::default()
    }
}

fn engine(model: &str, max_sequences: usize) -> Engine {
    with_grammars(load(format!("mtp/{model}/model.gguf"), &options(max_sequences)))
}

fn engine_of_folder(model: &str) -> Engine {
    let folder = DirectoryFolder::new(golden(format!("mtp/{model}")));
    let (options, mut progress) = (options(1), |_| Ok(()));
    pollster::block_on(Engine::load_from(&folder, Some("model.safetensors"), &options, &mut progress)).unwrap()
}

/// What the reference says: the prompt, the answer, and for each length of drafts how many tokens of the answer's first ones are drafted
/// and accepted.
struct Golden {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    answer: usize,
    counts: Vec<(usize, (usize, usize))>,
}

fn of_reference(model: &str) -> Golden {
    let path = golden(format!("mtp/{model}/golden.json"));
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let numbers =
        |value: &Value| -> Vec<u64> { value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect() };
    let ids = |key: &str| numbers(&golden[key]).into_iter().map(|id| id as u32).collect();
    let counts = golden["drafted_and_accepted"].as_object().unwrap().iter().map(|(length, counts)| {
        let counts = numbers(counts);
        (length.parse().unwrap(), (counts[0] as usize, counts[1] as usize))
    });
    let answer = golden["answer"].as_u64().unwrap() as usize;
    Golden { prompt: ids("ids"), greedy: ids("greedy"), answer, counts: counts.collect() }
}

fn mtp(max_tokens: usize) -> Value {
    json!({"speculation": {"type": "mtp", "max_tokens": max_tokens}})
}

fn both(mut one: Value, other: Value) -> Value {
    one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    one
}

/// The tokens of each choice, and how many were drafted and accepted in the last one.
async fn all(mut generation: Generation) -> (Vec<Vec<u32>>, Option<(usize, usize)>) {
    let (mut choices, mut counts) = (vec![], None);
    while let Some(chunk) = generation.next().await.unwrap() {
        choices.resize(choices.len().max(chunk.index + 1), vec![]);
        choices[chunk.index].extend(chunk.token_ids);
        let of = |timings: rillm::engine::Timings| timings.draft_tokens.zip(timings.accepted_draft_tokens);
        counts = chunk.timings.and_then(of).or(counts);
    }
    (choices, counts)
}

fn answer(engine: &Engine, prompt: &[u32], more: Value) -> (Vec<u32>, Option<(usize, usize)>) {
    let (mut choices, counts) = pollster::block_on(all(start(engine, request(prompt, more))));
    assert_eq!(choices.len(), 1);
    (choices.remove(0), counts)
}

fn drafts_are_those_of_the_reference(model: &str, engine: &Engine) {
    let Golden { prompt, greedy, answer: length, counts } = of_reference(model);
    let limit = json!({"max_tokens": length});
    for (max_tokens, wanted) in counts {
        let (tokens, found) = answer(engine, &prompt, both(limit.clone(), mtp(max_tokens)));
        assert_eq!((&tokens[..], found), (&greedy[..length], Some(wanted)), "{model}, drafts of {max_tokens}");
    }
    // Whoever does not ask gets no drafts.
    assert_eq!(answer(engine, &prompt, json!({})), (greedy, None));
}

#[test]
fn the_head_drafts_as_the_reference_does() {
    for model in [DENSE, WITH_EXPERTS] {
        drafts_are_those_of_the_reference(model, &engine(model, 1));
    }
}

#[test]
fn the_head_of_a_folder_is_the_same() {
    for model in [DENSE, WITH_EXPERTS] {
        drafts_are_those_of_the_reference(model, &engine_of_folder(model));
    }
}

/// How many drafts are right after an answer's first tokens, however these came into the caches.
#[test]
fn the_head_sees_tokens_by_whatever_pass_they_come() {
    for model in [DENSE, WITH_EXPERTS] {
        let Golden { prompt, greedy, .. } = of_reference(model);
        let longer = [&prompt[..], &greedy[..11]].concat();
        let drafted = |engine: &Engine| {
            let (tokens, counts) = answer(engine, &longer, both(json!({"max_tokens": 20}), mtp(2)));
            assert_eq!(tokens, greedy[11..31], "{model}");
            counts.unwrap()
        };
        // By a prompt.
        let wanted = drafted(&engine(model, 1));
        // By steps that run ahead, and past the end of what is kept.
        let by_steps = engine(model, 1);
        answer(&by_steps, &prompt, json!({"max_tokens": 12}));
        assert_eq!(drafted(&by_steps), wanted, "{model}, after steps");
        // By steps of two sequences.
        let together = engine(model, 2);
        let two = [request(&prompt, json!({"max_tokens": 12})), request(&prompt[..50], json!({"max_tokens": 25}))];
        pollster::block_on(join_all(two.into_iter().map(|asked| all(start(&together, asked)))));
        assert_eq!(drafted(&together), wanted, "{model}, after steps of two");
        // By drafts, most of which were rejected.
        let by_drafts = engine(model, 1);
        answer(&by_drafts, &prompt, both(json!({"max_tokens": 12}), mtp(7)));
        assert_eq!(drafted(&by_drafts), wanted, "{model}, after drafts");
        // From what a session saved, and from the prompt cache.
        let cached = engine(model, 1);
        answer(&cached, &prompt, json!({"max_tokens": 12}));
        answer(&cached, &prompt[5..60], json!({"max_tokens": 3}));
        assert_eq!(drafted(&cached), wanted, "{model}, after another text");
    }
}

fn grammar() -> Value {
    json!({"structured_outputs": {"regex": "[a-z ]{40}"}, "ignore_eos": false})
}

#[test]
fn every_way_of_decoding_with_drafts_gives_the_same() {
    for model in [DENSE, WITH_EXPERTS] {
        let engine = engine(model, 4);
        let Golden { prompt, greedy, .. } = of_reference(model);
        let plain = |prompt: &[u32]| answer(&engine, prompt, json!({})).0;
        let repeated = [&prompt[..20], &prompt[..20], &prompt[..20]].concat();
        let of_repeated = plain(&repeated);
        for max_tokens in [1, 4] {
            // The way changes between drafts and plain steps, within answers too.
            for _ in 0..3 {
                assert_eq!(answer(&engine, &prompt, mtp(max_tokens)).0, greedy, "{model}, drafts of {max_tokens}");
            }
            assert_eq!(answer(&engine, &repeated, mtp(max_tokens)).0, of_repeated);
        }
        // Of any length, one token included, and to the end of the context.
        for length in [1, 2, 3, 8] {
            assert_eq!(answer(&engine, &prompt, both(json!({"max_tokens": length}), mtp(3))).0, greedy[..length]);
        }
        let whole = answer(&engine, &prompt, json!({"max_tokens": 1000})).0;
        assert_eq!(answer(&engine, &prompt, both(json!({"max_tokens": 1000}), mtp(7))).0, whole, "64 tokens");

        let (choices, _) = pollster::block_on(all(start(&engine, request(&prompt, both(json!({"n": 3}), mtp(2))))));
        assert_eq!(choices, [greedy.clone(), greedy.clone(), greedy.clone()]);

        let constrained = answer(&engine, &prompt, grammar()).0;
        assert_eq!(answer(&engine, &prompt, both(grammar(), mtp(2))).0, constrained);

        let longer = [&prompt[..], &greedy[..5]].concat();
        let asked = [
            request(&prompt, mtp(2)),
            request(&repeated, json!({"speculation": {"type": "prompt_lookup"}})),
            request(&prompt, both(grammar(), mtp(1))),
            request(&longer, json!({"max_tokens": 27})),
        ];
        let given = pollster::block_on(join_all(asked.into_iter().map(|asked| all(start(&engine, asked)))));
        let given: Vec<_> = given.into_iter().map(|(mut choices, _)| choices.remove(0)).collect();
        assert_eq!(given, [greedy.clone(), of_repeated.clone(), constrained, greedy[5..].to_vec()]);

        // Dropped in mid-answer, then an edit, and the same again.
        let mut dropped = start(&engine, request(&prompt, mtp(3)));
        for _ in 0..3 {
            pollster::block_on(dropped.next()).unwrap();
        }
        drop(dropped);
        let edited = [&prompt[..60], &[7, 77, 201], &prompt[63..]].concat();
        assert_eq!(answer(&engine, &edited, mtp(2)).0, plain(&edited));
        assert_eq!(answer(&engine, &prompt, mtp(2)).0, greedy, "regenerated");
    }
}

#[test]
fn a_conversation_is_saved_with_what_the_head_keeps() {
    what_one_engine_saves_another_restores(&engine(DENSE, 1), &engine(DENSE, 1));
    // An engine that has not loaded the head keeps less of a text.
    let without = load(format!("mtp/{DENSE}/model.gguf"), &LoadOptions { multi_token_prediction: false, ..options(1) });
    let mut bytes = Vec::new();
    let conversation = json!({"messages": [{"role": "user", "content": "what now"}]});
    let mut write = |piece: Vec<u8>| {
        bytes.extend(piece);
        Ok(())
    };
    pollster::block_on(without.save_session(&conversation, None, &mut write)).unwrap();
    let refused = pollster::block_on(engine(DENSE, 1).restore_session(&MemorySource::new(bytes)));
    assert_eq!(refused.err().unwrap().code(), Code::SessionMismatch);
}

fn inspected(file: &str, options: &LoadOptions) -> Inspection {
    let source = FileSource::open(golden(file)).unwrap();
    pollster::block_on(inspect(&OneFile(&source), None, options)).unwrap()
}

#[test]
fn it_is_loaded_only_if_it_is_asked_for() {
    let file = format!("mtp/{DENSE}/model.gguf");
    let with = options(2);
    let without = LoadOptions { multi_token_prediction: false, ..options(2) };
    let (loaded, plain) = (load(&file, &with), load(&file, &without));
    let (said, said_of_plain) = (inspected(&file, &with), inspected(&file, &without));
    for (engine, said, is_loaded) in [(&loaded, &said, true), (&plain, &said_of_plain, false)] {
        let info = engine.info();
        assert_eq!(info.multi_token_prediction, is_loaded);
        assert_eq!((said.multi_token_prediction, said.kv_cache_bytes), (Some(true), Some(info.kv_cache_bytes)));
        let told =
            |message: &str| message.contains("multi-token prediction") && message.contains("multiTokenPrediction");
        assert_eq!(info.warnings.iter().any(|warning| told(&warning.message)), !is_loaded, "{:?}", info.warnings);
        assert_eq!(said.warnings.len(), info.warnings.len());
    }
    assert!(loaded.info().weight_bytes > plain.info().weight_bytes);
    assert!(loaded.info().kv_cache_bytes > plain.info().kv_cache_bytes);
    assert_eq!(loaded.info().weight_bytes_per_token, plain.info().weight_bytes_per_token);
    let refuse = |engine: &Engine, more: Value, words: &[&str]| {
        let asked = CompletionRequest::parse(request(&[1], more)).unwrap();
        check_error(&engine.complete(asked).err().unwrap(), Code::InvalidRequest, words);
    };
    refuse(&plain, mtp(2), &["mtp", "multiTokenPrediction"]);
    refuse(&loaded, mtp(0), &["max_tokens", "1 to 7"]);
    refuse(&loaded, mtp(8), &["max_tokens", "1 to 7"]);
    refuse(&loaded, both(json!({"temperature": 0.5}), mtp(2)), &["temperature"]);
    refuse(&loaded, both(json!({"context_shift": true}), mtp(2)), &["context_shift"]);
}

/// A golden folder is refused after `change` has done something to the header of its tensors.
fn refused(change: impl Fn(&mut Value), code: Code, words: &[&str]) {
    let read = |name: &str| std::fs::read(golden(format!("mtp/{DENSE}/{name}"))).unwrap();
    let model = read("model.safetensors");
    let length = u64::from_le_bytes(model[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&model[8..8 + length]).unwrap();
    change(&mut header);
    let text = header.to_string().into_bytes();
    let model = [&(text.len() as u64).to_le_bytes()[..], &text, &model[8 + length..]].concat();
    let files = vec![
        ("config.json".to_owned(), read("config.json")),
        ("model.safetensors".to_owned(), model),
        ("tokenizer.json".to_owned(), read("tokenizer.json")),
    ];
    let folder = MemoryFolder::new(files);
    let of = |options: &LoadOptions| pollster::block_on(inspect(&folder, None, options)).unwrap().problem;
    let problem = of(&options(1)).expect("this head must be refused");
    assert_eq!(problem.code, code.as_str(), "{}", problem.message);
    for word in words {
        assert!(problem.message.contains(word), "{word:?} is not in {:?}", problem.message);
    }
    // Without the head the model runs.
    assert!(of(&LoadOptions::default()).is_none());
}

#[test]
fn a_head_that_does_not_fit_is_refused_by_name_and_leaves_the_model_alone() {
    let rename = |from: &'static str, to: &'static str| {
        move |header: &mut Value| {
            let header = header.as_object_mut().unwrap();
            let entry = header.remove(from).unwrap();
            header.insert(to.to_owned(), entry);
        }
    };
    // Files have no gaps, so what is missing belongs to another part.
    let remove = |name: &'static str| rename(name, "model.visual.pos_embed.weight");
    let unsupported = Code::UnsupportedArchitecture;
    refused(remove("mtp.fc.weight"), Code::MissingTensor, &["eh_proj", "multiTokenPrediction"]);
    refused(remove("mtp.norm.weight"), Code::MissingTensor, &["output_norm", "multi-token prediction"]);
    refused(remove("mtp.layers.0.self_attn.k_proj.weight"), Code::MissingTensor, &["attn_k"]);
    refused(remove("mtp.layers.0.mlp.up_proj.weight"), Code::MissingTensor, &["ffn_up"]);
    refused(rename("mtp.norm.weight", "mtp.layers.1.input_layernorm.weight"), unsupported, &["2 layers"]);
    let turned = |header: &mut Value| header["mtp.fc.weight"]["shape"] = json!([64, 32]);
    refused(turned, Code::ShapeMismatch, &["eh_proj", "[64, 32]"]);

    let none = inspected("architectures/lfm2/model.gguf", &options(1)).problem.unwrap();
    assert_eq!(none.code, Code::InvalidRequest.as_str());
    assert!(none.message.contains("no head for multi-token prediction"), "{}", none.message);
    assert_eq!(inspected("architectures/lfm2/model.gguf", &LoadOptions::default()).multi_token_prediction, Some(false));
    let other = inspected("architectures/glm4_moe/model.gguf", &options(1)).problem.unwrap();
    assert_eq!(other.code, unsupported.as_str());
    assert!(other.message.contains("glm4moe"), "{}", other.message);
}
