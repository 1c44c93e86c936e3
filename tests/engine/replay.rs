//! Answers that are generated again with what is known of them go on as they went on before.

use crate::support::engines::{engine, load};
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::{Chunk, Engine, FinishReason, LoadOptions, Replay, ReplayedChoice};
use serde_json::{Value, json};

type Answer = (String, Vec<u32>, Option<FinishReason>);

fn run(engine: &Engine, request: &Value, replay: Replay) -> rillm::Result<Vec<Chunk>> {
    pollster::block_on(async {
        let request = CompletionRequest::parse(request.clone()).unwrap();
        let mut generation = engine.complete(request)?.with_replay(replay)?;
        let mut chunks = Vec::new();
        while let Some(chunk) = generation.next().await? {
            chunks.push(chunk);
        }
        Ok(chunks)
    })
}

fn answers(chunks: &[Chunk], choices: usize) -> Vec<Answer> {
    let of = |index: usize| -> Answer {
        let own = || chunks.iter().filter(|chunk| chunk.index == index);
        let text = own().map(|chunk| chunk.text.as_str()).collect();
        (text, own().flat_map(|chunk| chunk.token_ids.clone()).collect(), own().next_back().unwrap().finish_reason)
    };
    (0..choices).map(of).collect()
}

fn replay(choices: Vec<ReplayedChoice>) -> Replay {
    Replay { seed: 7, choices }
}

/// The answer is the same with the first of its tokens known: none, one, some, all but one and all of them.
fn check(engine: &Engine, request: &Value, choices: usize) {
    let whole = answers(&run(engine, request, replay(vec![])).unwrap(), choices);
    let longest = whole.iter().map(|(_, tokens, _)| tokens.len()).max().unwrap();
    assert!(longest > 3, "{request}: an answer of {longest} tokens shows nothing");
    for known in [0, 1, 2, longest / 2, longest - 1, longest] {
        let known_of = |(_, tokens, _): &Answer| {
            let known = known.min(tokens.len());
            ReplayedChoice { tokens: tokens[..known].to_vec(), is_finished: known == tokens.len() }
        };
        let chunks = run(engine, request, replay(whole.iter().map(known_of).collect())).unwrap();
        assert_eq!(answers(&chunks, choices), whole, "{request}, {known} tokens known");
        let usage = chunks.last().unwrap().usage.unwrap();
        assert_eq!(usage.completion_tokens, whole.iter().map(|(_, tokens, _)| tokens.len()).sum::<usize>());
    }
}

#[test]
fn an_answer_goes_on_after_what_is_known_of_it() {
    let engine = load("tiny_llama/tied-f32.gguf", &LoadOptions { max_sequences: Some(3), ..Default::default() });
    let prompt: Vec<u32> = (0..40).map(|i| (i * i * 7 + i) % 250).collect();
    let asked = |more: Value| {
        let mut request = json!({"prompt": prompt, "max_tokens": 24, "ignore_eos": true});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    for (more, choices) in [
        (json!({"temperature": 0}), 1),
        (json!({"temperature": 1.2, "top_p": 0.95}), 1),
        (json!({"temperature": 1.2, "seed": 5}), 1),
        (json!({"temperature": 0.9, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "min_tokens": 9}), 1),
        (json!({"temperature": 0, "dry_multiplier": 1.0, "logit_bias": {"17": 4}}), 1),
        (json!({"temperature": 0, "speculation": {"type": "prompt_lookup"}, "ignore_eos": false}), 1),
        (json!({"temperature": 1.1, "n": 3}), 3),
        (json!({"temperature": 1.1, "n": 5}), 5),
        (json!({"temperature": 1.4, "ignore_eos": false, "n": 4, "max_tokens": 60}), 4),
    ] {
        check(&engine, &asked(more), choices);
    }
}

#[test]
fn what_can_not_be_known_is_refused() {
    let engine = engine("tiny_llama/tied-f32.gguf", 1);
    let request = json!({"prompt": "Once", "max_tokens": 8});
    let of = |tokens: Vec<u32>| ReplayedChoice { tokens, is_finished: false };
    let code = |choices| run(&engine, &request, replay(choices)).unwrap_err().code();
    assert_eq!(code(vec![of(vec![1]), of(vec![2])]), Code::InvalidRequest, "more choices than were asked for");
    assert_eq!(code(vec![of(vec![u32::MAX])]), Code::OutOfRange, "a token that the model has not");
    // What is known beyond the limit of tokens ends there.
    let chunks = run(&engine, &request, replay(vec![of((0..20).collect())])).unwrap();
    assert_eq!(answers(&chunks, 1)[0].1.len(), 8);
    assert_eq!(answers(&chunks, 1)[0].2, Some(FinishReason::Length));
}
