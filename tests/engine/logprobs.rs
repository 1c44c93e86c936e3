//! Log probabilities of an answer's tokens, on a native GPU: against those of the logits themselves, computed in f64.

use crate::support::{
    engines::{engine, load},
    files::demo_model,
};
use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::{ChatRequest, CompletionRequest};
use rillm::engine::{Chunk, Engine, LoadOptions, TokenLogprobs};
use serde_json::{Value, json};

async fn chunks(engine: &Engine, request: &Value) -> rillm::Result<Vec<Chunk>> {
    let mut generation = engine.complete(CompletionRequest::parse(request.clone())?)?;
    let mut chunks = Vec::new();
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn run(engine: &Engine, request: &Value) -> Vec<Chunk> {
    pollster::block_on(chunks(engine, request)).unwrap()
}

fn tokens(chunks: &[Chunk]) -> Vec<u32> {
    chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect()
}

fn logprobs(chunks: &[Chunk]) -> Vec<TokenLogprobs> {
    chunks.iter().flat_map(|chunk| chunk.logprobs.clone().unwrap()).collect()
}

/// Of each token after the prompt, the logarithms of softmax over a vocabulary, the largest first: by a pass over all of it.
fn exact(engine: &Engine, prompt: &[u32], answer: &[u32]) -> Vec<Vec<(u32, f64)>> {
    let all = [prompt, answer].concat();
    let logits = pollster::block_on(async { engine.forward(&all[..all.len() - 1]).await.unwrap().readback().await });
    let (logits, vocabulary) = (logits.unwrap(), engine.info().vocab_size);
    let of_row = |row: &[f32]| {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
        let mut all: Vec<(u32, f64)> =
            (0..).zip(row).map(|(token, logit)| (token, f64::from(logit - largest) - sum.ln())).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all
    };
    logits.chunks_exact(vocabulary).skip(prompt.len() - 1).map(of_row).collect()
}

fn assert_exact(engine: &Engine, prompt: &[u32], chunks: &[Chunk], top: usize) {
    let answer = tokens(chunks);
    let got = logprobs(chunks);
    assert_eq!(got.len(), answer.len(), "one for each token");
    for ((got, token), exact) in got.iter().zip(&answer).zip(exact(engine, prompt, &answer)) {
        let exactly = |id: u32| exact.iter().find(|(other, _)| *other == id).unwrap().1;
        assert_eq!(got.token.id, *token);
        assert!((f64::from(got.token.logprob) - exactly(*token)).abs() < 1e-3, "{got:?}");
        assert_eq!(got.top.len(), top);
        for (place, entry) in got.top.iter().enumerate() {
            // Passes over one token and over many round differently, so near ones may change places.
            assert!((f64::from(entry.logprob) - exact[place].1).abs() < 1e-3, "{place} of {got:?}");
            assert!((f64::from(entry.logprob) - exactly(entry.id)).abs() < 1e-3, "{place} of {got:?}");
        }
        assert!(got.top.windows(2).all(|pair| pair[0].logprob >= pair[1].logprob));
    }
}

const PROMPT: [u32; 5] = [11, 45, 78, 102, 9];

#[test]
fn they_are_those_of_the_model_whatever_chooses() {
    let engine = engine("tiny_llama/tied-f16.gguf", 1);
    for (top, more) in [
        (20, json!({"temperature": 0})),
        (5, json!({"temperature": 1.7, "seed": 3})),
        (1, json!({"temperature": 0.4, "seed": 4, "top_k": 9, "top_p": 0.8})),
        (0, json!({"seed": 9, "min_p": 0.1})),
        (3, json!({"temperature": 0, "presence_penalty": 2, "logit_bias": {"45": 5}, "suppress_tokens": [78]})),
        (2, json!({"temperature": 1, "seed": 8, "mirostat": 2, "mirostat_tau": 3})),
    ] {
        let mut request = json!({"prompt": PROMPT, "max_tokens": 40, "ignore_eos": true, "logprobs": top});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let with = run(&engine, &request);
        assert_exact(&engine, &PROMPT, &with, top);
        // What is chosen is the same, and so is it where part of the prompt is known from before.
        request.as_object_mut().unwrap().remove("logprobs");
        let without = run(&engine, &request);
        assert_eq!(tokens(&with), tokens(&without), "{request}");
        assert!(without.iter().all(|chunk| chunk.logprobs.is_none()));
    }
}

/// Some of those that decode together want log probabilities, each of another number; answers are longer than the ring.
#[test]
fn sequences_that_decode_together_have_their_own() {
    let engine = engine("tiny_qwen2/tied-q8_0.gguf", 4);
    let requests: Vec<Value> = (0..4)
        .map(|index| {
            let prompt: Vec<u32> = (0..3 + 7 * index).map(|i| (i * 13 + index * 31) as u32 % 250).collect();
            let mut request = json!({"prompt": prompt, "max_tokens": 150 + index, "ignore_eos": true, "seed": index,
                "temperature": (index % 2) as f32});
            if index != 1 {
                request["logprobs"] = json!([3, 0, 0, 20][index]);
            }
            request
        })
        .collect();
    let together = pollster::block_on(join_all(requests.iter().map(|request| chunks(&engine, request))));
    for (index, (request, got)) in requests.iter().zip(together).enumerate() {
        let got = got.unwrap();
        let prompt: Vec<u32> = serde_json::from_value(request["prompt"].clone()).unwrap();
        match request.get("logprobs") {
            Some(top) => assert_exact(&engine, &prompt, &got, top.as_u64().unwrap() as usize),
            None => assert!(got.iter().all(|chunk| chunk.logprobs.is_none())),
        }
        assert_eq!(tokens(&got).len(), 150 + index);
        let alone = run(&engine, request);
        assert_eq!(tokens(&got), tokens(&alone));
        if index != 1 {
            for (together, alone) in logprobs(&got).iter().zip(logprobs(&alone)) {
                assert!((together.token.logprob - alone.token.logprob).abs() < 1e-3);
            }
        }
    }
}

/// One read-back brings tokens and log probabilities: steps with them run ahead as others do, and write nothing.
#[test]
fn they_cost_no_maps_and_no_writes() {
    let engine = engine("tiny_llama/tied-q4_0.gguf", 1);
    let count = |more: Value, max_tokens: usize| {
        let mut request = json!({"prompt": PROMPT, "max_tokens": max_tokens, "ignore_eos": true, "temperature": 0});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        run(&engine, &request);
        engine.reset_stats();
        run(&engine, &request);
        engine.stats()
    };
    let with = count(json!({"logprobs": 20}), 120);
    // How many steps share a submit follows from how long they take: two at least, and one where they run at once.
    let most = if engine.context().device().runs_at_once() { 122 } else { 62 };
    assert!(with.maps <= most, "{} maps for 120 tokens", with.maps);
    let few = count(json!({"logprobs": 20}), 20);
    assert_eq!(with.staged_writes, few.staged_writes, "writes belong to the prompt");
    let without = count(json!({}), 120);
    assert!(without.dispatches + 120 * 2 <= with.dispatches, "two dispatches a step");
    // Steps past the end are encoded too.
    assert!(with.dispatches <= without.dispatches + 2 * (120 + 2 * 32), "and no more");
}

/// Texts and offsets: the pieces are the answer, wherever characters and tokens begin.
#[test]
fn texts_and_offsets_are_those_of_the_answer() {
    let engine = load(demo_model(), &LoadOptions::default());
    let request = json!({"messages": [{"role": "user", "content": "Where does Anna live? Grüße 🦊"}], "max_tokens": 60,
        "temperature": 1.2, "seed": 8, "logprobs": true, "top_logprobs": 2});
    let chunks = pollster::block_on(async {
        let mut generation = engine.chat(ChatRequest::parse(request).unwrap()).unwrap();
        let mut chunks = Vec::new();
        while let Some(chunk) = generation.next().await.unwrap() {
            chunks.push(chunk);
        }
        chunks
    });
    let text: Vec<u16> = chunks.iter().flat_map(|chunk| chunk.text.encode_utf16()).collect();
    let all = logprobs(&chunks);
    assert_eq!(all.iter().map(|of| of.token.id).collect::<Vec<_>>(), tokens(&chunks));
    for (index, of) in all.iter().enumerate() {
        assert_eq!(of.token.token, String::from_utf8_lossy(&of.token.bytes));
        let end = all.get(index + 1).map_or(text.len(), |next| next.offset);
        let piece = String::from_utf16(&text[of.offset..end]).unwrap();
        let is_control = of.token.token.starts_with("<|");
        assert!(
            piece == of.token.token || is_control && piece.is_empty() || of.token.token.contains('\u{fffd}'),
            "{of:?}"
        );
    }
}

#[test]
fn what_can_not_be_had_is_refused_by_name() {
    let engine = engine("tiny_llama/tied-q4_0.gguf", 1);
    let messages = json!([{"role": "user", "content": "?"}]);
    let chats = [
        (json!({"logprobs": 3}), "logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs is 21, wanted 0 to 20"),
        (json!({"logprobs": true, "top_logprobs": -1}), "top_logprobs"),
        (json!({"logprobs": true, "top_logprobs": 1.5}), "top_logprobs"),
        (json!({"top_logprobs": 3}), "without logprobs: true"),
        (json!({"logprobs": false, "top_logprobs": 3}), "without logprobs: true"),
        (json!({"logprobs": true, "temperature": 0, "speculation": {"type": "prompt_lookup"}}), "speculation"),
        (json!({"prompt_logprobs": 3}), "prompt_logprobs"),
        (json!({"echo": true}), "echo"),
    ];
    for (fields, wanted) in chats {
        let mut request = json!({"messages": messages});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let error = ChatRequest::parse(request).and_then(|request| engine.chat(request)).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest, "{fields}");
        assert!(error.message().contains(wanted), "{fields}: {error}");
    }
    for (fields, wanted) in [
        (json!({"logprobs": true}), "logprobs"),
        (json!({"logprobs": 21}), "logprobs is 21, wanted 0 to 20"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"prompt_logprobs": 3}), "prompt_logprobs"),
        (json!({"echo": true}), "echo"),
    ] {
        let mut request = json!({"prompt": [1, 2]});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let error = CompletionRequest::parse(request).and_then(|request| engine.complete(request)).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest, "{fields}");
        assert!(error.message().contains(wanted), "{fields}: {error}");
    }
    // And null is as good as nothing.
    assert!(CompletionRequest::parse(json!({"prompt": [1], "logprobs": null})).is_ok());
}
