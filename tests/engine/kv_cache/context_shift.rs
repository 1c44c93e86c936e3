//! Generations that go on past the end of the context.

use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::{Chunk, Engine, FinishReason, KvFormat, LoadOptions};
use rillm::model::state::Shift;
use serde_json::{Value, json};

use crate::support::soak::is_soak;

use super::{Loaded, NOT_SHIFTED, adapter, exact, file_of, load, models, prompt};

/// Odd, so that halves are not whole.
const CAPACITY: usize = 33;
const SINKS: usize = 3;

fn engine(model: &str, more: LoadOptions) -> Engine {
    load(&file_of(model), &LoadOptions { context_length: Some(CAPACITY), ..more }).unwrap()
}

async fn run(engine: &Engine, request: Value) -> rillm::Result<(Vec<u32>, Chunk)> {
    let mut generation = engine.complete(CompletionRequest::parse(request)?)?;
    let (mut tokens, mut last) = (Vec::new(), None);
    while let Some(chunk) = generation.next().await? {
        tokens.extend(&chunk.token_ids);
        last = Some(chunk);
    }
    Ok((tokens, last.unwrap()))
}

fn answer(engine: &Engine, request: Value) -> (Vec<u32>, Chunk) {
    pollster::block_on(run(engine, request)).unwrap()
}

fn request(length: usize, max_tokens: usize) -> Value {
    json!({
        "prompt": prompt(length), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true,
        "context_shift": {"sinks": SINKS},
    })
}

/// Logits that are nearer than this are a tie: joined ops round otherwise than single ones, and so does a product of many tokens.
const NEAR_TIE: f32 = 1e-3;

/// Holds a greedy answer to what is computed one op and one token at a time; tells the shifts and what was dropped on the way. Tokens are
/// less likely by `penalty` each time that they stand in the part of the answer that the context holds.
fn check_by_hand(model: &str, prompt: &[u32], answer: &[u32], penalty: f32) -> (usize, usize) {
    let loaded = Loaded::new(&adapter::context(true), model, false, KvFormat::F32, CAPACITY, None);
    // What the context holds, and whether it is of the answer.
    let mut text: Vec<(u32, bool)> = prompt.iter().map(|id| (*id, false)).collect();
    let check = |logits: &[f32], text: &[(u32, bool)], index: usize| {
        let mut logits = logits.to_vec();
        text.iter().filter(|(_, is_answer)| *is_answer).for_each(|(id, _)| logits[*id as usize] -= penalty);
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let chosen = logits[answer[index] as usize];
        assert!(most - chosen < NEAR_TIE, "{model}: token {index} has the logit {chosen}, the most likely one {most}");
    };
    let logits = loaded.forward(prompt, 0);
    check(&logits[logits.len() / prompt.len() * (prompt.len() - 1)..], &text, 0);
    let (mut shifts, mut all_dropped) = (0, 0);
    for (index, last) in answer.iter().enumerate().take(answer.len() - 1) {
        if text.len() == CAPACITY {
            let dropped = (CAPACITY - SINKS) / 2;
            loaded.transformer.shift(&loaded.cache, Shift { sinks: SINKS, dropped, length: text.len() }).unwrap();
            text.drain(SINKS..SINKS + dropped);
            (shifts, all_dropped) = (shifts + 1, all_dropped + dropped);
        }
        let logits = loaded.forward(&[*last], text.len());
        text.push((*last, true));
        check(&logits, &text, index + 1);
    }
    (shifts, all_dropped)
}

/// One of each kind of what a shift moves: whole and half turned keys, neighbours turned together, windows, sinks, scaled ropes, latents, biases by
/// distance, no positions, shared keys, experts. What a shift makes of keys is tried with every architecture (`turned_keys`).
const KINDS: [&str; 14] = [
    "bloom",
    "cohere2",
    "deepseek_v3",
    "gemma3",
    "gemma3n",
    "glm4",
    "gpt_oss",
    "gptneox",
    "llama3",
    "minicpm3",
    "mixtral",
    "phi3",
    "qwen3",
    "smollm3",
];

/// Two contexts of text, and five by some: the steps that run ahead, joined ops and sampling on the GPU give what one token at a time gives.
#[test]
fn an_answer_can_be_five_contexts_long() {
    for model in models() {
        if !is_soak() && !KINDS.contains(&&*model) && !NOT_SHIFTED.contains(&&*model) {
            continue;
        }
        let is_long = is_soak() || ["deepseek_v3", "gemma3", "llama3"].contains(&&*model);
        let contexts = if is_long { 5 } else { 2 };
        let long = contexts * CAPACITY;
        let engine = engine(&model, exact());
        let asked = request(16, long);
        if NOT_SHIFTED.contains(&&*model) {
            let error = pollster::block_on(run(&engine, asked)).unwrap_err();
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.message().starts_with("context_shift: "), "{error}");
            continue;
        }
        let (tokens, last) = answer(&engine, asked);
        assert_eq!(tokens.len(), long, "{model}");
        let (shifts, dropped) = check_by_hand(&model, &prompt(16), &tokens, 0.0);
        assert_eq!(last.finish_reason, Some(FinishReason::Length));
        assert_eq!(last.usage.unwrap().completion_tokens, long);
        let timings = last.timings.unwrap();
        assert_eq!((timings.context_shifts, timings.dropped_tokens), (Some(shifts), Some(dropped)), "{model}");
        assert!(shifts >= 2 * contexts - 1);
    }
}

/// Other formats of the cache, drafts, several sequences, sampling: what one generation gives alone by plain steps.
#[test]
fn however_it_decodes_the_answer_is_the_same() {
    let asked = request(20, 150);
    for model in ["llama3", "gemma3"] {
        let (wanted, _) = answer(&engine(model, exact()), asked.clone());
        let drafted = {
            let mut asked = asked.clone();
            asked["speculation"] = json!({"type": "prompt_lookup", "min_ngram": 1});
            asked
        };
        let (tokens, last) = answer(&engine(model, exact()), drafted);
        assert_eq!(tokens, wanted, "{model}, with drafts");
        assert!(last.timings.unwrap().context_shifts.unwrap() >= 9);
        let gpu = LoadOptions {
            device: rillm::engine::DeviceOptions { software_kernels: Some(false), ..Default::default() },
            ..exact()
        };
        assert_eq!(answer(&engine(model, gpu), asked.clone()).0, wanted, "{model}, kernels of GPUs");

        // Sequences that reach the end of their contexts at different times, and one that has no shift.
        let three = engine(model, LoadOptions { max_sequences: Some(3), ..exact() });
        let mut ends = request(9, 100);
        ends["context_shift"] = json!(false);
        let requests = [asked.clone(), request(5, 120), ends];
        let alone: Vec<Vec<u32>> = requests.iter().map(|asked| answer(&three, asked.clone()).0).collect();
        assert_eq!(alone[0], wanted, "{model}");
        assert_eq!(alone[2].len(), CAPACITY - 9);
        let together = pollster::block_on(join_all(requests.iter().map(|asked| run(&three, asked.clone()))));
        for (together, alone) in together.into_iter().zip(alone) {
            assert_eq!(together.unwrap().0, alone, "{model}, together");
        }
    }
    for kv_cache in [KvFormat::F16, KvFormat::Q8_0] {
        for model in ["llama3", "stablelm"] {
            let engine = engine(model, LoadOptions { kv_cache: Some(kv_cache), ..exact() });
            let mut sampled = asked.clone();
            sampled["temperature"] = json!(1);
            sampled["top_p"] = json!(0.9);
            sampled["seed"] = json!(7);
            let (tokens, last) = answer(&engine, sampled);
            assert_eq!((tokens.len(), last.finish_reason), (150, Some(FinishReason::Length)), "{model} {kv_cache:?}");
        }
    }
}

/// Penalties look at what the context holds, and those of the answer at what of it is of the answer: also while the shifts leave of
/// the prompt but a part.
#[test]
fn penalties_look_at_what_is_left() {
    for model in ["llama3", "gemma3"] {
        let engine = engine(model, LoadOptions { max_sequences: Some(2), ..exact() });
        let requests = [(28, 120), (11, 100)].map(|(length, max_tokens)| {
            let mut asked = request(length, max_tokens);
            asked["frequency_penalty"] = json!(0.25);
            asked
        });
        let wanted = requests.clone().map(|asked| answer(&engine, asked).0);
        for ((length, most), wanted) in [(28, 120), (11, 100)].into_iter().zip(&wanted) {
            assert_eq!(wanted.len(), most, "{model}");
            check_by_hand(model, &prompt(length), wanted, 0.25);
        }
        assert_ne!(wanted[0], answer(&engine, request(28, 120)).0, "{model}: the penalty is felt");
        let together = pollster::block_on(join_all(requests.iter().map(|asked| run(&engine, asked.clone()))));
        for (together, wanted) in together.into_iter().zip(wanted) {
            assert_eq!(together.unwrap().0, wanted, "{model}, together");
        }
    }
}

/// What a shifted context holds has seen tokens that are gone: a prompt that begins like it is taken in anew, but for the sinks.
#[test]
fn the_next_prompt_finds_no_more_than_the_sinks() {
    let fresh = engine("qwen3", exact());
    let shifted = engine("qwen3", exact());
    let plain = |prompt: &[u32]| json!({"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": true});
    let (tokens, _) = answer(&shifted, request(16, 60));
    // The sinks, and then what stands after them after the last shift, as far as that can be told.
    let text = [&prompt(SINKS)[..], &tokens[tokens.len() - 20..]].concat();
    for prompt in [prompt(16), text] {
        let (wanted, _) = answer(&fresh, plain(&prompt));
        answer(&shifted, request(16, 60));
        let (got, last) = answer(&shifted, plain(&prompt));
        assert_eq!(got, wanted);
        assert_eq!(last.timings.unwrap().cached_prompt_tokens, SINKS);
        // And from then on as ever.
        let (got, last) = answer(&shifted, plain(&prompt));
        assert_eq!((got, last.timings.unwrap().cached_prompt_tokens), (wanted, prompt.len() - 1));
    }
}

#[test]
fn a_shift_leaves_nothing_behind() {
    let engine = engine("llama3", exact());
    // The first takes its prompt in as a whole, the second finds the sinks.
    answer(&engine, request(16, 100));
    answer(&engine, request(16, 100));
    let before = engine.stats();
    answer(&engine, request(16, 300));
    let after = engine.stats();
    let created = |stats: &rillm::tensor::Stats| (stats.pipelines_created, stats.live_buffers, stats.live_bytes);
    assert_eq!(created(&after), created(&before));
}

/// Without a word on it a full context is the end, as ever; and what can't be is refused by name.
#[test]
fn a_shift_is_only_done_when_asked_for() {
    let engine = engine("llama3", exact());
    for without in [json!(false), Value::Null] {
        let mut asked = request(16, 100);
        asked["context_shift"] = without;
        let (tokens, last) = answer(&engine, asked);
        assert_eq!((tokens.len(), last.finish_reason), (CAPACITY - 16, Some(FinishReason::Length)));
        assert_eq!(last.timings.unwrap().context_shifts, None);
    }
    // Asked for, and the answer is short.
    let mut asked = request(16, 4);
    asked["context_shift"] = json!(true);
    let timings = answer(&engine, asked).1.timings.unwrap();
    assert_eq!((timings.context_shifts, timings.dropped_tokens), (Some(0), Some(0)));

    let refused = |field: &str, value: Value, code: Code, words: &str| {
        let mut asked = request(16, 4);
        asked[field] = value;
        let error = pollster::block_on(run(&engine, asked)).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(words), "{error}");
    };
    // A prompt has to fit.
    refused("prompt", json!(prompt(CAPACITY)), Code::ContextLengthExceeded, "33 tokens, and the context holds 33");
    refused("context_shift", json!({"sinks": 17}), Code::InvalidRequest, "context_shift.sinks is 17, wanted 0 to 16");
    refused("context_shift", json!({"keep": 1}), Code::InvalidRequest, "context_shift: wanted true, false or");
    refused("context_shift", json!("yes"), Code::InvalidRequest, "context_shift: wanted true, false or");
    answer(&engine, request(16, 4));
}
