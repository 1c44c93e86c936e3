//! The requests, and what is measured of them.

use std::time::Instant;

use pollster::block_on;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{Engine, Generation, LoadOptions};
use rillm::native::with_grammars;
use serde_json::{Value, json};

/// Answers of each measurement that are not counted, and those that are.
const WARM_UP: usize = 2;
const REPETITIONS: usize = 7;
const TOKENS: usize = 128;
const AT_ONCE: usize = 4;

pub fn main() {
    let path = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).expect("wanted: a GGUF file");
    let options = LoadOptions { max_sequences: Some(AT_ONCE), ..LoadOptions::default() };
    let source = FileSource::open(path).unwrap();
    let engine = with_grammars(block_on(Engine::load(&source, &options, &mut |_| Ok(()))).unwrap());
    println!("{} on {:?}", engine.info().architecture, engine.info().adapter);
    let head =
        ["1: tok/s", "4 at once: tok/s", "1: dispatches, submits a token", "4: the same", "1, 4: ms to first token"];
    println!("{:20} {:>22} {:>22} {:>31} {:>14} {:>24}", "", head[0], head[1], head[2], head[3], head[4]);
    let schema = json!({"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 30}},
        "required": ["names"], "additionalProperties": false});
    for (name, more) in [
        ("plain", json!({"temperature": 0, "ignore_eos": true})),
        ("top_k 40", json!({"temperature": 1, "top_k": 40, "seed": 7, "ignore_eos": true})),
        ("JSON schema", json!({"temperature": 0, "structured_outputs": {"json": schema}})),
        (
            "regular expression",
            json!({"temperature": 1, "seed": 5, "structured_outputs": {"regex": "([a-z]{2,9} ){200}"}}),
        ),
        (
            "prompt lookup",
            json!({"temperature": 0, "ignore_eos": true, "speculation": {"type": "prompt_lookup", "min_ngram": 2}}),
        ),
    ] {
        let one = speeds(&engine, &more, 1);
        let several = speeds(&engine, &more, AT_ONCE);
        let (alone, together) = (counters(&engine, &more, 1), counters(&engine, &more, AT_ONCE));
        let first = format!("{:.1}, {:.1}", alone.1, together.1);
        println!("{name:20} {one:>22} {several:>22} {:>31} {:>14} {first:>24}", alone.0, together.0);
    }
}

/// Dispatches and submits for each token, and the milliseconds until all answers had begun.
fn counters(engine: &Engine, more: &Value, count: usize) -> (String, f64) {
    engine.reset_stats();
    let (tokens, first) = answers(engine, more, count);
    let stats = engine.stats();
    let per_token = |count: u64| count as f64 / tokens as f64;
    (format!("{:.1}, {:.2}", per_token(stats.dispatches), per_token(stats.submits)), first)
}

/// How many tokens `count` answers have that run at once, and the milliseconds until all had begun. Natively a wait blocks, so they are
/// asked in turns: whoever is asked drives all.
fn answers(engine: &Engine, more: &Value, count: usize) -> (usize, f64) {
    let begin = Instant::now();
    let mut running: Vec<Generation> = (0..count)
        .map(|index| {
            let prompt: Vec<u32> = (0..32).map(|at| (at * 7 + index as u32 * 13) % 200 + 20).collect();
            let mut request = json!({"prompt": prompt, "max_tokens": TOKENS});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            engine.complete(CompletionRequest::parse(request).unwrap()).unwrap()
        })
        .collect();
    let (mut tokens, mut first) = (0, None);
    while !running.is_empty() {
        running.retain_mut(|generation| match block_on(generation.next()).unwrap() {
            Some(chunk) => {
                tokens += chunk.token_ids.len();
                true
            }
            None => false,
        });
        first.get_or_insert_with(|| begin.elapsed().as_secs_f64() * 1e3);
    }
    (tokens, first.unwrap_or(0.0))
}

/// Tokens per second of all answers: the median, and the range.
fn speeds(engine: &Engine, more: &Value, count: usize) -> String {
    let mut speeds: Vec<f64> = (0..WARM_UP + REPETITIONS)
        .map(|_| {
            let begin = Instant::now();
            let (tokens, _) = answers(engine, more, count);
            tokens as f64 / begin.elapsed().as_secs_f64()
        })
        .skip(WARM_UP)
        .collect();
    speeds.sort_by(f64::total_cmp);
    format!("{:.0} ({:.0}–{:.0})", speeds[REPETITIONS / 2], speeds[0], speeds[REPETITIONS - 1])
}
