//! Several answers to one prompt, and that a seed gives the same answer again, on a native GPU.

use std::collections::BTreeSet;

use crate::support::engines::{engine, load};
use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::{Chunk, Engine, FinishReason, Generation, KvFormat, LoadOptions};
use serde_json::{Value, json};

fn start(engine: &Engine, request: &Value) -> Generation {
    engine.complete(CompletionRequest::parse(request.clone()).unwrap()).unwrap()
}

async fn rest(generation: &mut Generation) -> rillm::Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn run(engine: &Engine, request: &Value) -> Vec<Chunk> {
    pollster::block_on(rest(&mut start(engine, request))).unwrap()
}

type Answer = (String, Vec<u32>, Option<FinishReason>);

/// The answers by their index.
fn answers(chunks: &[Chunk], n: usize) -> Vec<Answer> {
    (0..n)
        .map(|index| {
            let own: Vec<&Chunk> = chunks.iter().filter(|chunk| chunk.index == index).collect();
            assert_eq!(own.iter().filter(|chunk| chunk.finish_reason.is_some()).count(), 1, "choice {index} ends once");
            (
                own.iter().map(|chunk| chunk.text.as_str()).collect(),
                own.iter().flat_map(|chunk| chunk.token_ids.clone()).collect(),
                own.last().unwrap().finish_reason,
            )
        })
        .collect()
}

fn answer(engine: &Engine, request: &Value) -> Answer {
    answers(&run(engine, request), 1).remove(0)
}

fn with(request: &Value, more: Value) -> Value {
    let mut request = request.clone();
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn prompt(length: usize, start: usize) -> Vec<u32> {
    (0..length).map(|i| ((i * i * 7 + i + start) % 250) as u32).collect()
}

/// Choice i is what a request of its own with the seed + i gives, whether there is a sequence for each, for some, or for one.
#[test]
fn each_choice_is_the_answer_to_its_seed() {
    for (name, unfused_ops, kv_cache) in [
        ("tiny_llama/tied-f16.gguf", false, None),
        ("tiny_qwen2/tied-q8_0.gguf", false, None),
        ("tiny_llama/tied-q8_0.gguf", true, None),
        // Blocks of 8-bit integers are copied with their scales; heads of 32 fill a block, heads of 16 half of one.
        ("tiny_llama/untied-q8_0.gguf", false, Some(KvFormat::Q8_0)),
        ("tiny_llama/tied-f16.gguf", false, Some(KvFormat::Q8_0)),
        ("tiny_llama/tied-q8_0.gguf", true, Some(KvFormat::Q8_0)),
    ] {
        let load = |max_sequences| {
            let max_sequences = Some(max_sequences);
            load(name, &LoadOptions { max_sequences, unfused_ops, kv_cache, ..Default::default() })
        };
        let request = json!({"prompt": prompt(70, 3), "max_tokens": 40, "ignore_eos": true, "temperature": 1.3, "seed": 41,
            "top_p": 0.95, "repetition_penalty": 1.2, "frequency_penalty": 0.3});
        let one = load(1);
        let wanted: Vec<Answer> =
            (0..5).map(|index| answer(&one, &with(&request, json!({"seed": 41 + index})))).collect();
        assert_eq!(wanted.iter().map(|answer| &answer.1).collect::<BTreeSet<_>>().len(), 5);
        for (max_sequences, n) in [(1, 3), (3, 5), (5, 5), (8, 2)] {
            let engine = if max_sequences == 1 { None } else { Some(load(max_sequences)) };
            let chunks = run(engine.as_ref().unwrap_or(&one), &with(&request, json!({"n": n})));
            assert_eq!(answers(&chunks, n), wanted[..n], "{name} {kv_cache:?}, {n} of {max_sequences}");
            let (last, others) = chunks.split_last().unwrap();
            assert!(others.iter().all(|chunk| chunk.usage.is_none() && chunk.timings.is_none()));
            let usage = last.usage.unwrap();
            assert_eq!((usage.prompt_tokens, usage.completion_tokens), (70, n * 40), "the prompt counts once");
            assert_eq!(usage.total_tokens, 70 + n * 40);
            assert!(last.timings.unwrap().decode_ms > 0.0);
        }
    }
}

/// The prompt goes through the model once, and the others decode with the first in shared steps.
#[test]
fn a_prompt_is_taken_in_once() {
    let engine = engine("tiny_llama/tied-q4_0.gguf", 4);
    let request = json!({"prompt": prompt(200, 9), "max_tokens": 60, "ignore_eos": true, "seed": 1});
    let dispatches = |more: Value| {
        run(&engine, &with(&request, more.clone()));
        run(&engine, &json!({"prompt": [7], "max_tokens": 1}));
        engine.reset_stats();
        run(&engine, &with(&request, more));
        engine.stats().dispatches
    };
    let (one, four) = (dispatches(json!({})), dispatches(json!({"n": 4})));
    assert!(four < 3 * one, "{four} dispatches for four answers, {one} for one");
}

/// Of different lengths: each ends for itself, with the end of the model's turn or by its length.
#[test]
fn choices_end_each_for_itself() {
    let engine = engine("tiny_llama/tied-q4_0.gguf", 3);
    let request = json!({"prompt": prompt(9, 2), "max_tokens": 200, "temperature": 2.0, "seed": 5, "n": 7});
    let answers = answers(&run(&engine, &request), 7);
    let lengths: BTreeSet<usize> = answers.iter().map(|answer| answer.1.len()).collect();
    assert!(lengths.len() > 1, "{lengths:?}");
    // All sessions are back.
    run(&engine, &with(&request, json!({"n": 3})));
}

/// A choice that took the prompt over from the first one and ends before it has found all of the prompt in the cache; the request has not.
#[test]
fn what_the_cache_held_is_what_the_first_choice_found() {
    let request =
        json!({"prompt": prompt(70, 3), "max_tokens": 30, "ignore_eos": true, "temperature": 1.3, "seed": 41, "n": 2});
    let free = answers(&run(&engine("tiny_llama/tied-q8_0.gguf", 2), &request), 2);
    let own = *free[1].1[..10].iter().find(|token| !free[0].1.contains(token)).unwrap();
    let engine = engine("tiny_llama/tied-q8_0.gguf", 2);
    let request = with(&request, json!({"stop_token_ids": [own]}));
    for (held, run_number) in [(0, "first"), (68, "second")] {
        let chunks = run(&engine, &request);
        let lengths: Vec<usize> = answers(&chunks, 2).iter().map(|answer| answer.1.len()).collect();
        assert!(lengths[1] < lengths[0], "{lengths:?}");
        let last = chunks.last().unwrap();
        let (usage, timings) = (last.usage.unwrap(), last.timings.unwrap());
        assert_eq!(usage.prompt_tokens_details.cached_tokens, held, "the {run_number} time");
        assert_eq!(timings.cached_prompt_tokens, held, "the {run_number} time");
    }
}

#[test]
fn cancelling_ends_all_of_them() {
    for max_sequences in [1, 4] {
        let engine = engine("tiny_llama/tied-q4_0.gguf", max_sequences);
        let request = json!({"prompt": prompt(9, 2), "max_tokens": 400, "ignore_eos": true, "seed": 5, "n": 4});
        let mut generation = start(&engine, &request);
        let mut chunks = vec![pollster::block_on(generation.next()).unwrap().unwrap()];
        generation.cancel();
        chunks.extend(pollster::block_on(rest(&mut generation)).unwrap());
        let answers = answers(&chunks, 4);
        assert!(answers.iter().all(|answer| answer.2 == Some(FinishReason::Cancelled)));
        assert!(chunks.last().unwrap().usage.unwrap().completion_tokens < 4 * 400);
        // Dropped in the middle, too, they give everything back.
        let mut generation = start(&engine, &request);
        pollster::block_on(generation.next()).unwrap();
        drop(generation);
        let wanted = answer(&engine, &json!({"prompt": prompt(9, 2), "max_tokens": 9, "temperature": 0}));
        assert_eq!(answer(&engine, &json!({"prompt": prompt(9, 2), "max_tokens": 9, "temperature": 0})), wanted);
    }
}

/// Beside other requests, which take sessions that choices would have taken.
#[test]
fn choices_and_other_requests_share_an_engine() {
    let engine = engine("tiny_qwen2/tied-q8_0.gguf", 3);
    let several =
        json!({"prompt": prompt(30, 4), "max_tokens": 30, "ignore_eos": true, "seed": 7, "n": 4, "logprobs": 2});
    let other = json!({"prompt": prompt(12, 90), "max_tokens": 50, "ignore_eos": true, "temperature": 0});
    let wanted = (answers(&run(&engine, &several), 4), answer(&engine, &other));
    let (mut first, mut second) = (start(&engine, &other), start(&engine, &several));
    pollster::block_on(async {
        // The other one has its session before.
        let chunk = first.next().await.unwrap().unwrap();
        let both = join_all([rest(&mut first), rest(&mut second)]).await;
        let [one, several] = <[_; 2]>::try_from(both).unwrap().map(Result::unwrap);
        assert_eq!(answers(&several, 4), wanted.0);
        assert_eq!(answers(&[vec![chunk], one].concat(), 1)[0], wanted.1);
        assert!(several.iter().all(|chunk| chunk.logprobs.as_ref().unwrap().len() == chunk.token_ids.len()));
    });
}

#[test]
fn how_many_there_may_be() {
    for n in [json!(0), json!(129), json!(-1), json!(1.5), json!("2")] {
        let error = CompletionRequest::parse(json!({"prompt": [1], "n": n}))
            .and_then(|request| engine("tiny_llama/tied-q4_0.gguf", 1).complete(request).map(|_| ()));
        let error = error.unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("n"), "{error}");
    }
}

/// The same request with a seed gives the same tokens: on a fresh engine, again with the cache full of it, after other requests, after
/// one that it continues, and beside others.
#[test]
fn a_seed_gives_the_same_tokens() {
    for precision in [rillm::engine::Precision::Exact, rillm::engine::Precision::Fast] {
        let load = |max_sequences| {
            let options =
                LoadOptions { max_sequences: Some(max_sequences), precision: Some(precision), ..Default::default() };
            load("tiny_llama/untied-q8_0.gguf", &options)
        };
        for length in [1, 2, 33, 130] {
            let request = json!({"prompt": prompt(length, 5), "max_tokens": 60, "ignore_eos": true, "temperature": 1.5, "seed": 77,
                "logprobs": 3});
            let exactly = |engine: &Engine| {
                let chunks = run(engine, &request);
                // To the bit: whatever the cache held, the same kernels ran on the same numbers.
                let logprobs: Vec<u32> = chunks
                    .iter()
                    .flat_map(|chunk| chunk.logprobs.as_ref().unwrap())
                    .map(|of| of.token.logprob.to_bits())
                    .collect();
                (answers(&chunks, 1).remove(0), logprobs)
            };
            let engine = load(1);
            let fresh = exactly(&engine);
            assert_eq!(exactly(&engine), fresh, "again");
            run(&engine, &json!({"prompt": prompt(40, 100), "max_tokens": 20}));
            assert_eq!(exactly(&engine), fresh, "after another request");
            // What it begins with was taken in in other parts, and partly by decode steps.
            let beginning = &prompt(length, 5)[..length.div_ceil(2)];
            let tokens: Vec<u32> = [beginning, &[3, 4, 5]].concat();
            run(&engine, &json!({"prompt": tokens, "max_tokens": 5, "temperature": 0}));
            run(&engine, &json!({"prompt": beginning, "max_tokens": 1, "logit_bias": null}));
            assert_eq!(exactly(&engine), fresh, "after its beginning");
            let longer = [prompt(length, 5), vec![9, 9, 9]].concat();
            run(&engine, &json!({"prompt": longer, "max_tokens": 5}));
            assert_eq!(exactly(&engine), fresh, "after what continues it");
            let other = load(3);
            assert_eq!(exactly(&other), fresh, "with several sequences");
            // Steps of several sequences round otherwise than those of one, in the last bits.
            let others =
                [json!({"prompt": prompt(9, 1), "max_tokens": 70}), json!({"prompt": prompt(5, 8), "max_tokens": 30})];
            let mut all: Vec<Generation> = others.iter().chain([&request]).map(|of| start(&other, of)).collect();
            let chunks = pollster::block_on(join_all(all.iter_mut().map(rest))).pop().unwrap().unwrap();
            assert_eq!(answers(&chunks, 1)[0], fresh.0, "beside others");
        }
    }
}

/// Without one, two equal requests differ.
#[test]
fn without_a_seed_answers_differ() {
    let engine = engine("tiny_llama/tied-q4_0.gguf", 1);
    let request = json!({"prompt": prompt(9, 2), "max_tokens": 30, "ignore_eos": true, "temperature": 1.5});
    assert_ne!(answer(&engine, &request), answer(&engine, &request));
}
