//! Structured output on a native GPU.

mod requests;
mod schemas;

use std::path::Path;

use crate::support::{engines, files::demo_model};
use rillm::engine::request::ChatRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{Chunk, Engine, FinishReason, LoadOptions, Usage};
use rillm::native::with_grammars;
use rillm::{Error, Result};
use serde_json::{Value, json};

fn load(options: &LoadOptions) -> Engine {
    with_grammars(engines::load(demo_model(), options))
}

fn engine() -> Engine {
    load(&LoadOptions::default())
}

#[derive(Clone, Debug, PartialEq)]
struct Answer {
    text: String,
    tokens: Vec<u32>,
    reason: FinishReason,
    usage: Usage,
}

fn try_chat(engine: &Engine, request: &Value) -> Result<Answer> {
    let mut generation = engine.chat(ChatRequest::parse(request.clone())?)?;
    let mut chunks: Vec<Chunk> = vec![];
    while let Some(chunk) = pollster::block_on(generation.next())? {
        chunks.push(chunk);
    }
    let last = chunks.last().unwrap();
    Ok(Answer {
        text: chunks.iter().map(|chunk| chunk.text.as_str()).collect(),
        tokens: chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect(),
        reason: last.finish_reason.unwrap(),
        // What the cache held is another each time.
        usage: Usage { prompt_tokens_details: Default::default(), ..last.usage.unwrap() },
    })
}

fn chat(engine: &Engine, request: &Value) -> Answer {
    try_chat(engine, request).unwrap()
}

fn refusal(engine: &Engine, request: &Value) -> Error {
    try_chat(engine, request).unwrap_err()
}

/// A greedy request, with more fields.
fn ask(question: &str, more: Value) -> Value {
    let mut request = json!({"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 120});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}
