//! SmolLM2-135M-Instruct, a real chat model, held to transformers and llama.cpp (`scripts/golden/smollm2_texts.py`).

use crate::support::{engines::load, files::golden, real_models, soak::is_soak};
use futures_util::future::join_all;
use rillm::engine::request::{ChatRequest, CompletionRequest};
use rillm::engine::{Engine, FinishReason, Generation, LoadOptions};
use rillm::native::with_grammars;
use serde_json::{Value, json};

/// Tokens of each text. A software adapter takes a while for more.
fn compared() -> usize {
    if is_soak() { 24 } else { 8 }
}

/// `<|im_end|>`
const END_OF_TURN: u32 = 2;

struct Answer {
    text: String,
    tokens: Vec<u32>,
    reason: FinishReason,
    cached: usize,
    calls: Vec<(String, String)>,
}

async fn rest(mut generation: Generation) -> Answer {
    let mut answer =
        Answer { text: String::new(), tokens: vec![], reason: FinishReason::Length, cached: 0, calls: vec![] };
    while let Some(chunk) = generation.next().await.unwrap() {
        answer.text += &chunk.text;
        answer.tokens.extend(&chunk.token_ids);
        for delta in &chunk.tool_calls {
            match &delta.function.name {
                Some(name) => answer.calls.push((name.clone(), delta.function.arguments.clone())),
                None => answer.calls.last_mut().unwrap().1 += &delta.function.arguments,
            }
        }
        answer.reason = chunk.finish_reason.unwrap_or(answer.reason);
        if let Some(usage) = chunk.usage {
            answer.cached = usage.prompt_tokens_details.cached_tokens;
        }
    }
    answer
}

fn chat(engine: &Engine, request: Value) -> Answer {
    pollster::block_on(rest(engine.chat(ChatRequest::parse(request).unwrap()).unwrap()))
}

fn said(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap().to_owned()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn a_real_chat_model_answers_as_transformers_and_llama_cpp() {
    let Some(file) = real_models::smollm2() else { return };
    let wanted: Value = serde_json::from_slice(&std::fs::read(golden("smollm2/texts.json")).unwrap()).unwrap();
    let (texts, turns) = (wanted["texts"].as_array().unwrap(), wanted["turns"].as_array().unwrap());
    let options = LoadOptions { max_sequences: Some(8), context_length: Some(1024), ..LoadOptions::default() };
    let engine = with_grammars(load(file, &options));
    let info = engine.info();
    assert_eq!((info.architecture.as_str(), info.quantization.as_str(), info.layers), ("llama", "Q4_1", 30));

    // Ten texts at once, of which two wait.
    let asked = texts.iter().map(|text| {
        let request =
            json!({"prompt": said(text, "prompt"), "max_tokens": compared(), "temperature": 0, "ignore_eos": true});
        rest(engine.complete(CompletionRequest::parse(request).unwrap()).unwrap())
    });
    for (got, wanted) in pollster::block_on(join_all(asked)).iter().zip(texts) {
        assert_eq!(engine.tokenizer().encode(&said(wanted, "prompt"), true, true).unwrap(), ids(&wanted["prompt_ids"]));
        assert_eq!(got.tokens, ids(&wanted["tokens"])[..compared()], "{wanted}");
        assert!(said(wanted, "text").starts_with(&got.text), "{}, wanted {wanted}", got.text);
    }

    // A chat of ten turns. Each takes in what is new alone.
    let mut messages = vec![];
    for (number, wanted) in turns.iter().enumerate() {
        messages.push(json!({"role": "user", "content": said(wanted, "user")}));
        let got = chat(&engine, json!({"messages": messages, "max_tokens": compared(), "temperature": 0}));
        // A shorter text ended with the token that ends a turn.
        let tokens: Vec<u32> = ids(&wanted["tokens"]).into_iter().chain([END_OF_TURN]).take(compared()).collect();
        assert_eq!(got.tokens, tokens, "{wanted}");
        let new = ids(&wanted["prompt_ids"]).len() - got.cached;
        assert!(number == 0 || new < 60, "turn {number} took in {new} tokens");
        messages.push(json!({"role": "assistant", "content": said(wanted, "text")}));
    }

    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer", "minimum": 0, "maximum": 50_000_000}},
        "required": ["city", "people"],
        "additionalProperties": false,
    });
    let question = json!([{"role": "user", "content": "Name a city and how many people live there, in JSON."}]);
    let format = json!({"type": "json_schema", "json_schema": {"name": "city", "schema": schema}});
    let got =
        chat(&engine, json!({"messages": question, "response_format": format, "temperature": 0, "max_tokens": 60}));
    let object: Value = serde_json::from_str(&got.text).unwrap_or_else(|error| panic!("{error}: {}", got.text));
    assert!(object["city"].is_string() && object["people"].as_u64().is_some_and(|n| n <= 50_000_000), "{object}");
    assert_eq!(got.reason, FinishReason::Stop);

    let weather = json!({"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": false}}});
    let question = json!([{"role": "user", "content": "What is the weather in Oslo?"}]);
    let got = chat(
        &engine,
        json!({"messages": question, "tools": [weather], "tool_choice": "required", "parallel_tool_calls": false,
            "temperature": 0, "max_tokens": 80}),
    );
    assert_eq!((got.reason, got.calls.len()), (FinishReason::ToolCalls, 1));
    assert_eq!(got.calls[0].0, "get_weather");
    let arguments: Value = serde_json::from_str(&got.calls[0].1).unwrap();
    assert!(arguments["city"].is_string(), "{arguments}");
}
