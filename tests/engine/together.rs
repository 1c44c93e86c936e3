//! Features of requests that go together, in one request and in several at once. The demo model is large enough to answer.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use rillm::Result;
use rillm::engine::request::ChatRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{Chunk, Engine, FinishReason, Generation, LoadOptions, LogitsProcessor, Timings};
use rillm::native::with_grammars;
use serde_json::{Value, json};

use crate::support::engines::exact_on_cpu;

fn engine(options: &LoadOptions) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo/rillm-demo-q4_0.gguf");
    let source = FileSource::open(path).unwrap();
    with_grammars(pollster::block_on(Engine::load(&source, &exact_on_cpu(options), &mut |_| Ok(()))).unwrap())
}

fn several(max_sequences: usize) -> Engine {
    engine(&LoadOptions { max_sequences: Some(max_sequences), ..LoadOptions::default() })
}

fn ask(question: &str, more: Value) -> Value {
    let mut request = json!({"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 60});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn person() -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": false,
    }}}})
}

fn with(mut one: Value, other: Value) -> Value {
    one.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    one
}

#[derive(Debug, PartialEq)]
struct Answer {
    text: String,
    tokens: Vec<u32>,
    reason: FinishReason,
}

async fn rest(generation: &mut Generation) -> Result<(Answer, Timings)> {
    let mut chunks: Vec<Chunk> = vec![];
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    let last = chunks.last().unwrap();
    let answer = Answer {
        text: chunks.iter().map(|chunk| chunk.text.as_str()).collect(),
        tokens: chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect(),
        reason: last.finish_reason.unwrap(),
    };
    Ok((answer, last.timings.unwrap()))
}

fn start(engine: &Engine, request: &Value) -> Generation {
    engine.chat(ChatRequest::parse(request.clone()).unwrap()).unwrap()
}

fn answer(engine: &Engine, request: &Value) -> (Answer, Timings) {
    pollster::block_on(rest(&mut start(engine, request))).unwrap()
}

/// Takes some tokens away, and counts how often it was asked.
struct Without {
    tokens: Vec<usize>,
    calls: Cell<usize>,
}

impl LogitsProcessor for Without {
    fn process(&self, mut logits: Vec<f32>, _: Vec<u32>, _: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>> {
        self.calls.set(self.calls.get() + 1);
        for token in &self.tokens {
            logits[*token] = f32::NEG_INFINITY;
        }
        async move { Ok(Some(logits)) }.boxed_local()
    }
}

const QUESTION: &str = "Anna is 12 years old. Answer in JSON with the keys name and age.";

#[test]
fn drafts_change_nothing_under_a_grammar() {
    let engine = several(1);
    let mut accepted = 0;
    for (question, more) in [
        (QUESTION, person()),
        (QUESTION, json!({"structured_outputs": {"regex": "(Anna is 12\\. )+[0-9]"}})),
        ("Tell me a story about a fox.", json!({"structured_outputs": {"regex": "([a-z]{2,7} ){6}[0-9]+"}})),
        ("Tell me a story about a fox.", json!({"structured_outputs": {"choice": ["red fox", "grey wolf"]}})),
        // The model repeats itself here.
        ("Hello!", json!({"response_format": {"type": "json_object"}, "max_tokens": 120})),
    ] {
        let plain = answer(&engine, &ask(question, more.clone())).0;
        let lookup = json!({"speculation": {"type": "prompt_lookup", "min_ngram": 1, "max_tokens": 7}});
        let (drafted, timings) = answer(&engine, &ask(question, with(more, lookup)));
        assert_eq!(drafted, plain);
        accepted += timings.accepted_draft_tokens.unwrap();
    }
    assert!(accepted > 0, "no draft was ever right");
}

#[test]
fn a_processor_sees_what_a_grammar_leaves_open() {
    let engine = several(1);
    let plain = answer(&engine, &ask(QUESTION, person())).0;
    let with_processor = |tokens: Vec<usize>| {
        let processor = Rc::new(Without { tokens, calls: Cell::new(0) });
        let generation = start(&engine, &ask(QUESTION, person()));
        let mut generation = generation.with_logits_processor(processor.clone()).unwrap();
        (pollster::block_on(rest(&mut generation)).unwrap(), processor.calls.get())
    };
    let ((same, timings), calls) = with_processor(vec![]);
    assert_eq!(same, plain);
    let forced = timings.forced_tokens.unwrap();
    assert!(
        forced > 0 && calls + forced == plain.tokens.len(),
        "{calls} calls, {forced} of {} forced",
        plain.tokens.len()
    );
    // What it takes away is not chosen, and the answer is still what the grammar admits.
    let name = engine.tokenizer().encode("Anna", false, false).unwrap();
    let ((other, _), _) = with_processor(name.iter().map(|id| *id as usize).collect());
    assert_ne!(other, plain);
    let value: Value = serde_json::from_str(&other.text).unwrap();
    assert!(value["name"].is_string() && value["age"].is_u64(), "{other:?}");
}

#[test]
fn a_grammar_goes_on_past_the_end_of_the_context() {
    let short = engine(&LoadOptions { context_length: Some(64), ..LoadOptions::default() });
    let digits =
        json!({"structured_outputs": {"regex": "([0-9]{3} )*[a-z]"}, "context_shift": true, "max_tokens": 150});
    for more in [
        json!({}),
        json!({"temperature": 1, "seed": 3}),
        json!({"temperature": 1, "seed": 4, "top_p": 0.9, "frequency_penalty": 0.3}),
    ] {
        let (answer, timings) = answer(&short, &ask("Hello!", with(digits.clone(), more.clone())));
        if answer.reason == FinishReason::Length {
            assert_eq!(answer.tokens.len(), 150, "{more}");
            assert!(timings.context_shifts.unwrap() > 0 && timings.dropped_tokens.unwrap() > 0, "{more}");
        }
        let text = answer.text.trim_end_matches(|c: char| c.is_ascii_lowercase());
        for group in text.trim_end().split(' ') {
            assert!(group.len() <= 3 && group.chars().all(|c| c.is_ascii_digit()), "{more}: {:?}", answer.text);
        }
    }
    // A processor, too.
    let processor = Rc::new(Without { tokens: vec![], calls: Cell::new(0) });
    let request = ask("Hello!", json!({"context_shift": true, "max_tokens": 120, "ignore_eos": true}));
    let plain = answer(&short, &request).0;
    let mut generation = start(&short, &request).with_logits_processor(processor.clone()).unwrap();
    let (processed, timings) = pollster::block_on(rest(&mut generation)).unwrap();
    assert_eq!(processed, plain);
    assert_eq!(processor.calls.get(), 120);
    assert!(timings.context_shifts.unwrap() > 0);
}

#[test]
fn mirostat_chooses_among_what_a_grammar_allows() {
    let engine = several(1);
    for tau in [2, 5] {
        let more = json!({"temperature": 1, "seed": 5, "mirostat": 2, "mirostat_tau": tau});
        let request = ask(QUESTION, with(person(), more));
        let (first, timings) = answer(&engine, &request);
        assert_eq!(timings.dropped_steps, Some(0));
        assert_eq!(answer(&engine, &request).0, first, "the same seed");
        if first.reason == FinishReason::Stop {
            let value: Value = serde_json::from_str(&first.text).unwrap();
            assert!(value["name"].is_string() && value["age"].is_u64(), "{first:?}");
        }
    }
}

/// Requests that differ in all that they ask for: each gives what it gives alone, and forward passes are shared.
#[test]
fn requests_of_all_kinds_run_at_once() {
    let engine = several(4);
    let requests = [
        ask("Tell me a story.", json!({})),
        ask(QUESTION, person()),
        ask("Tell me a story about a fox.", json!({"ignore_eos": true})),
        ask(
            "Who are you? Who are you? Who are you?",
            json!({"speculation": {"type": "prompt_lookup", "min_ngram": 1}}),
        ),
    ];
    let generation = |index: usize| {
        let generation = start(&engine, &requests[index]);
        if index == 2 {
            let processor = Rc::new(Without { tokens: vec![7, 300], calls: Cell::new(0) });
            generation.with_logits_processor(processor).unwrap()
        } else {
            generation
        }
    };
    let run = |chosen: &[usize]| -> Vec<Answer> {
        let runs = chosen.iter().map(|index| async { rest(&mut generation(*index)).await.unwrap().0 });
        pollster::block_on(join_all(runs))
    };
    let alone: Vec<Answer> = (0..4).flat_map(|index| run(&[index])).collect();
    for _ in 0..2 {
        assert_eq!(run(&[0, 1, 2, 3]), alone);
    }
    assert_eq!(
        run(&[3, 1]),
        [&alone[3], &alone[1]].map(|answer| Answer {
            text: answer.text.clone(),
            tokens: answer.tokens.clone(),
            reason: answer.reason
        })
    );
}
