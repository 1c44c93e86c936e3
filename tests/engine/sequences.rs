//! Several generations at once on one engine, on a native GPU: each gives what it gives alone, by fewer passes.

use crate::support::engines::exact_on_cpu;
use crate::support::{
    engines::{engine, try_load as load},
    files::golden,
};
use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::MemorySource;
use rillm::engine::{Chunk, Engine, FinishReason, Generation, LoadOptions};
use serde_json::{Value, json};

type Answer = (String, Vec<u32>, FinishReason);

fn start(engine: &Engine, request: &Value) -> Generation {
    engine.complete(CompletionRequest::parse(request.clone()).unwrap()).unwrap()
}

fn answer(chunks: &[Chunk]) -> Answer {
    (
        chunks.iter().map(|chunk| chunk.text.as_str()).collect(),
        chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect(),
        chunks.last().unwrap().finish_reason.unwrap(),
    )
}

async fn rest(generation: &mut Generation, mut chunks: Vec<Chunk>) -> rillm::Result<Answer> {
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    Ok(answer(&chunks))
}

fn alone(engine: &Engine, request: &Value) -> Answer {
    pollster::block_on(rest(&mut start(engine, request), vec![])).unwrap()
}

fn together(engine: &Engine, requests: &[Value]) -> Vec<rillm::Result<Answer>> {
    let runs = requests.iter().map(|request| async { rest(&mut start(engine, request), vec![]).await });
    pollster::block_on(join_all(runs))
}

/// Eight requests of prompts and answers of different lengths.
fn requests(more: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..8)
        .map(|index| {
            let prompt: Vec<u32> =
                (0..[1, 5, 150, 3, 33, 2, 64, 9][index]).map(|i| (i * i * 7 + index * 31) as u32 % 250).collect();
            let mut request = json!({"prompt": prompt, "max_tokens": 24 + index * 9, "ignore_eos": true});
            request.as_object_mut().unwrap().extend(more(index).as_object().unwrap().clone());
            request
        })
        .collect()
}

fn each_gives_what_it_gives_alone(engine: &Engine, requests: &[Value]) {
    let wanted: Vec<Answer> = requests.iter().map(|request| alone(engine, request)).collect();
    for count in [2, 3, 5, 8] {
        for (index, got) in together(engine, &requests[..count]).into_iter().enumerate() {
            assert_eq!(got.unwrap(), wanted[index], "request {index} of {count}: {}", requests[index]);
        }
    }
    // And alone again, with what the others left in the caches.
    for (request, wanted) in requests.iter().zip(&wanted) {
        assert_eq!(alone(engine, request), *wanted);
    }
}

#[test]
fn greedy_answers_are_those_of_each_alone() {
    for name in ["tiny_llama/tied-q4_0.gguf", "tiny_llama/untied-q8_0.gguf", "tiny_qwen2/untied-q4_0.gguf"] {
        each_gives_what_it_gives_alone(&engine(name, 8), &requests(|_| json!({"temperature": 0})));
    }
}

/// Each with settings of its own: greedy, from the whole vocabulary, and from what is kept of it.
#[test]
fn sampled_answers_are_those_of_each_alone() {
    for name in ["tiny_llama/tied-f16.gguf", "tiny_qwen2/tied-q8_0.gguf"] {
        let requests = requests(|index| match index % 4 {
            0 => json!({"temperature": 1, "seed": index}),
            1 => json!({"temperature": 1.5, "seed": index, "top_p": 0.9}),
            2 => json!({"temperature": 0}),
            _ => json!({"temperature": 0.9, "seed": index, "top_k": 20, "min_p": 0.02}),
        });
        each_gives_what_it_gives_alone(&engine(name, 8), &requests);
    }
    let truncated = requests(|index| json!({"temperature": 1.2, "seed": index, "top_k": 30}));
    each_gives_what_it_gives_alone(&engine("tiny_llama/tied-q4_0.gguf", 8), &truncated);
}

/// Models whose matrices can't be joined have no step of several sequences: theirs take turns.
#[test]
fn what_can_not_decode_together_takes_turns() {
    let options = LoadOptions { max_sequences: Some(8), unfused_ops: true, ..Default::default() };
    let engine = load("tiny_llama/tied-q8_0.gguf", &options).unwrap();
    each_gives_what_it_gives_alone(&engine, &requests(|_| json!({"temperature": 0})));
}

/// Joined in the middle, left in the middle, read slowly.
#[test]
fn sequences_join_and_leave_at_any_time() {
    let engine = engine("tiny_llama/tied-q4_0.gguf", 3);
    let request = |start: u32, max_tokens: usize| json!({"prompt": [start, 7, 99], "temperature": 0, "max_tokens": max_tokens, "ignore_eos": true});
    let (first, second, third) = (request(3, 200), request(50, 60), request(120, 200));
    let wanted = [&first, &second, &third].map(|request| alone(&engine, request));
    let next = |generation: &mut Generation, chunks: &mut Vec<Chunk>| {
        chunks.push(pollster::block_on(generation.next()).unwrap().unwrap());
    };

    let (mut a, mut a_chunks) = (start(&engine, &first), vec![]);
    for _ in 0..3 {
        next(&mut a, &mut a_chunks);
    }
    let (mut b, mut b_chunks) = (start(&engine, &second), vec![]);
    for _ in 0..3 {
        next(&mut b, &mut b_chunks);
        next(&mut a, &mut a_chunks);
    }
    let (mut c, mut c_chunks) = (start(&engine, &third), vec![]);
    next(&mut c, &mut c_chunks);
    // There is room for three.
    let fourth = start(&engine, &first);
    let mut fourth = fourth;
    let error = pollster::block_on(fourth.next()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains("maxSequences"), "{error}");

    // The second is read to its end while the others wait for their readers, longer than they may run ahead.
    assert_eq!(pollster::block_on(rest(&mut b, b_chunks)).unwrap(), wanted[1]);
    for _ in 0..3 {
        assert_eq!(alone(&engine, &second), wanted[1]);
    }
    // The third is cancelled, and the first goes on to its end.
    c.cancel();
    next(&mut c, &mut c_chunks);
    assert_eq!(c_chunks.last().unwrap().finish_reason, Some(FinishReason::Cancelled));
    assert_eq!(pollster::block_on(rest(&mut a, a_chunks)).unwrap(), wanted[0]);
    // Dropped in the middle, with another beside it.
    let (mut c, mut a) = (start(&engine, &third), start(&engine, &first));
    let mut a_chunks = vec![];
    next(&mut a, &mut a_chunks);
    next(&mut c, &mut c_chunks);
    next(&mut a, &mut a_chunks);
    drop(c);
    assert_eq!(pollster::block_on(rest(&mut a, a_chunks)).unwrap(), wanted[0]);
    assert_eq!(alone(&engine, &third), wanted[2]);
}

/// A conversation goes on where a slot or the prompt cache holds it, whatever ran beside and after it.
#[test]
fn each_conversation_finds_its_own_cache() {
    let cached = |engine: &Engine, request: &Value| {
        let mut generation = start(engine, request);
        let mut last = None;
        while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
            last = Some(chunk);
        }
        last.unwrap().timings.unwrap().cached_prompt_tokens
    };
    let request = |start: u32, length: u32| {
        let prompt: Vec<u32> = (0..length).map(|i| (start + i * 3) % 250).collect();
        json!({"prompt": prompt, "temperature": 0, "max_tokens": 3, "ignore_eos": true})
    };
    // Without a prompt cache, a third conversation takes the place of the one that was used longest ago.
    for (prompt_cache_bytes, of_the_first) in [(Some(0), 0), (None, 30)] {
        let options = LoadOptions { max_sequences: Some(2), prompt_cache_bytes, ..Default::default() };
        let engine = load("tiny_llama/tied-q8_0.gguf", &options).unwrap();
        let cached = |start, length| cached(&engine, &request(start, length));
        assert_eq!((cached(1, 20), cached(2, 20)), (0, 0));
        assert_eq!((cached(1, 30), cached(2, 30)), (20, 20));
        assert_eq!(cached(100, 20), 0);
        assert_eq!((cached(2, 31), cached(1, 31)), (30, of_the_first));
    }
}

#[test]
fn a_warm_step_of_several_sequences_creates_and_writes_nothing() {
    let engine = engine("tiny_llama/tied-q4_0.gguf", 8);
    let layers = engine.info().layers as u64;
    for (count, top_p) in [(2, 1.0), (5, 1.0), (8, 1.0), (8, 0.9)] {
        let ask = |start: usize| json!({"prompt": [start, 2, 3], "max_tokens": 250, "top_p": top_p, "ignore_eos": true, "seed": 5});
        let mut running: Vec<Generation> = (0..count).map(|index| start(&engine, &ask(index + 1))).collect();
        let round = |running: &mut [Generation]| -> u64 {
            let chunks = pollster::block_on(join_all(running.iter_mut().map(Generation::next)));
            chunks.into_iter().map(|chunk| chunk.unwrap().unwrap().token_ids.len() as u64).sum()
        };
        // Counted in tokens, not in rounds: a busy machine has more tokens in a round.
        let mut warm = 0;
        while warm < 96 * count as u64 {
            warm += round(&mut running);
        }
        engine.reset_stats();
        let before = engine.stats();
        let mut tokens = 0;
        while tokens < 80 * count as u64 {
            tokens += round(&mut running);
        }
        let stats = engine.stats();
        // However many sequences there are.
        let per_step = 10 * layers + 3 + if top_p < 1.0 { 4 } else { 2 };
        assert_eq!(stats.dispatches % per_step, 0, "whole steps of {per_step} dispatches: {}", stats.dispatches);
        let steps = stats.dispatches / per_step;
        assert!(steps.abs_diff(tokens / count as u64) <= 64, "{steps} steps and {tokens} tokens of {count}");
        assert_eq!((stats.passes, stats.encoders, stats.maps), (stats.submits, stats.submits, stats.submits));
        assert!(stats.submits * 2 <= steps, "{} submits for {steps} steps", stats.submits);
        assert_eq!((stats.buffers_created, stats.bind_groups_created, stats.pipelines_created), (0, 0, 0), "{count}");
        assert_eq!((stats.uniform_writes, stats.bytes_uploaded), (0, 0), "{count}");
        assert_eq!((stats.live_buffers, stats.live_bytes), (before.live_buffers, before.live_bytes));
    }
}

/// The end of the context and the end of the model's turn, each at its own place.
#[test]
fn each_ends_where_it_ends_alone() {
    let options = LoadOptions { max_sequences: Some(4), context_length: Some(40), ..Default::default() };
    let short = load("tiny_llama/tied-q8_0.gguf", &options).unwrap();
    let of_length = |n: usize| json!({"prompt": vec![9; n], "temperature": 0, "ignore_eos": true});
    let asked: Vec<Value> = [3, 39, 20, 31].into_iter().map(of_length).collect();
    for (request, got) in asked.iter().zip(together(&short, &asked)) {
        let (text, tokens, reason) = got.unwrap();
        assert_eq!((tokens.len(), reason), (40 - request["prompt"].as_array().unwrap().len(), FinishReason::Length));
        assert_eq!((text, tokens, reason), alone(&short, request));
    }

    // The same model with another token as its end of text: one in the middle of an answer.
    let original = std::fs::read(golden("tiny_llama/tied-q8_0.gguf")).unwrap();
    let unending = engine("tiny_llama/tied-q8_0.gguf", 1);
    let key = b"tokenizer.ggml.eos_token_id";
    let value = original.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    let options = LoadOptions { max_sequences: Some(4), ..Default::default() };
    let request = |start: u32, ignore_eos: bool| json!({"prompt": [start], "temperature": 0, "max_tokens": 60, "ignore_eos": ignore_eos});
    let (first, end, engine) = (1..100)
        .find_map(|start| {
            let tokens = alone(&unending, &request(start, true)).1;
            (12..40).filter(|at| !tokens[..*at].contains(&tokens[*at])).find_map(|at| {
                let mut bytes = original.clone();
                bytes[value..value + 4].copy_from_slice(&tokens[at].to_le_bytes());
                let source = MemorySource::new(bytes);
                Some((
                    start,
                    tokens[at],
                    pollster::block_on(Engine::load(&source, &exact_on_cpu(&options), &mut |_| Ok(()))).ok()?,
                ))
            })
        })
        .unwrap();
    let asked = [request(first, false), request(first + 1, true), request(first, true), request(first + 2, false)];
    let wanted: Vec<Answer> = asked.iter().map(|request| alone(&engine, request)).collect();
    assert_eq!((wanted[0].2, wanted[0].1.last()), (FinishReason::Stop, Some(&end)));
    let got: Vec<Answer> = together(&engine, &asked).into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(got, wanted);
}

#[test]
fn an_error_is_everybodys_and_the_engine_goes_on() {
    let mut bytes = std::fs::read(golden("tiny_llama/tied-f32.gguf")).unwrap();
    // The last weight of the last tensor, which every logit depends on.
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    let options = LoadOptions { max_sequences: Some(2), ..Default::default() };
    let broken =
        pollster::block_on(Engine::load(&MemorySource::new(bytes), &exact_on_cpu(&options), &mut |_| Ok(()))).unwrap();
    let ask = json!({"prompt": [1, 2, 3], "max_tokens": 30, "temperature": 0});
    for got in together(&broken, &[ask.clone(), ask.clone()]) {
        assert_eq!(got.unwrap_err().code(), Code::NumericalError);
    }
    // One that fails at once, beside one that runs.
    let engine = engine("tiny_llama/tied-f32.gguf", 2);
    let wanted = alone(&engine, &ask);
    let bad = json!({"prompt": [1, 2, 1_000_000], "max_tokens": 3});
    let mut got = together(&engine, &[ask.clone(), bad]);
    assert_eq!(got.remove(1).unwrap_err().code(), Code::InvalidRequest);
    assert_eq!(got.remove(0).unwrap(), wanted);
    // Disposed of in the middle: everybody hears of it.
    let mut running = [start(&engine, &ask), start(&engine, &ask)];
    for generation in &mut running {
        pollster::block_on(generation.next()).unwrap();
    }
    engine.dispose();
    for generation in &mut running {
        let error = loop {
            match pollster::block_on(generation.next()) {
                Ok(chunk) => assert!(chunk.is_some(), "it ended before it heard of it"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::Disposed);
    }
}

#[test]
fn the_memory_of_all_sequences_is_known() {
    let (one, four) = (engine("tiny_llama/tied-q8_0.gguf", 1), engine("tiny_llama/tied-q8_0.gguf", 4));
    assert_eq!((one.info().max_sequences, four.info().max_sequences), (1, 4));
    let rounded = one.info().context_length.next_multiple_of(64) * 4;
    assert_eq!(
        four.info().kv_cache_bytes / rounded as u64,
        one.info().kv_cache_bytes / one.info().context_length as u64
    );
    for max_sequences in [0, 9] {
        let error = load(
            "tiny_llama/tied-q8_0.gguf",
            &LoadOptions { max_sequences: Some(max_sequences), ..Default::default() },
        );
        let error = error.err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("maxSequences"), "{error}");
    }
}
