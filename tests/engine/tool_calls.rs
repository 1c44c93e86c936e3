//! Tool calls, reasoning and what ends an answer, with the demo model on a native GPU.

use crate::support::{engines::load, files::demo_model};
use rillm::Code;
use rillm::engine::request::ChatRequest;
use rillm::engine::{Chunk, Engine, FinishReason, LoadOptions, StopReason, Usage};
use rillm::native::with_grammars;
use serde_json::{Value, json};

fn engine() -> Engine {
    with_grammars(load(demo_model(), &LoadOptions::default()))
}

thread_local! {
    // Never dropped: the end of a thread is no time for that.
    static ENGINE: &'static Engine = Box::leak(Box::new(engine()));
}

#[derive(Debug)]
struct Answer {
    text: String,
    reasoning: String,
    /// Id, name and arguments.
    calls: Vec<(String, String, String)>,
    reason: FinishReason,
    stop_reason: Option<StopReason>,
    usage: Usage,
    tokens: Vec<u32>,
    chunks: Vec<Chunk>,
}

fn ask(request: Value) -> Result<Answer, rillm::Error> {
    let mut whole = json!({"temperature": 0, "max_tokens": 120});
    whole.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
    let chunks = ENGINE.with(|engine| {
        let mut generation = engine.chat(ChatRequest::parse(whole)?)?;
        let mut chunks = vec![];
        while let Some(chunk) = pollster::block_on(generation.next())? {
            chunks.push(chunk);
        }
        Ok(chunks)
    })?;
    let mut calls: Vec<(String, String, String)> = vec![];
    for delta in chunks.iter().flat_map(|chunk| &chunk.tool_calls) {
        match (&delta.id, &delta.function.name) {
            (Some(id), Some(name)) => {
                assert_eq!((delta.index, delta.kind), (calls.len(), Some("function")));
                calls.push((id.clone(), name.clone(), String::new()));
            }
            (None, None) => assert_eq!((delta.index + 1, delta.kind), (calls.len(), None)),
            other => panic!("{other:?}"),
        }
        calls.last_mut().unwrap().2.push_str(&delta.function.arguments);
    }
    let last = chunks.last().unwrap();
    Ok(Answer {
        text: chunks.iter().map(|chunk| chunk.text.as_str()).collect(),
        reasoning: chunks.iter().map(|chunk| chunk.reasoning.as_str()).collect(),
        calls,
        reason: last.finish_reason.unwrap(),
        stop_reason: last.stop_reason.clone(),
        usage: last.usage.unwrap(),
        tokens: chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect(),
        chunks,
    })
}

fn tools() -> Value {
    let tool = |name: &str, description: &str, argument: &str| {
        json!({"type": "function", "function": {"name": name, "description": description, "parameters": {
            "type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}}})
    };
    json!([
        tool("get_weather", "Get the weather in a city", "city"),
        tool("get_time", "Get the local time in a city", "city"),
        tool("calculator", "Evaluate an arithmetic expression", "expression"),
    ])
}

fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

fn arguments(call: &(String, String, String)) -> Value {
    serde_json::from_str(&call.2).unwrap()
}

#[test]
fn a_call_comes_in_parts() {
    let answer = ask(json!({"messages": user("What is the weather in Oslo?"), "tools": tools()})).unwrap();
    assert_eq!(answer.reason, FinishReason::ToolCalls);
    assert_eq!((answer.text.as_str(), answer.calls.len()), ("", 1), "{answer:?}");
    let call = &answer.calls[0];
    assert_eq!((call.1.as_str(), arguments(call)), ("get_weather", json!({"city": "Oslo"})));
    assert!(call.0.starts_with("call_") && call.0.len() == 29, "{}", call.0);
    // The name comes before the arguments are over.
    assert!(answer.chunks.iter().filter(|chunk| !chunk.tool_calls.is_empty()).count() > 1, "{:?}", answer.chunks);
    // The result goes on.
    let messages = json!([
        {"role": "user", "content": "What is the weather in Oslo?"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": call.0, "type": "function", "function": {"name": call.1, "arguments": call.2}}]},
        {"role": "tool", "tool_call_id": call.0, "content": "{\"temperature\": 7, \"sky\": \"rain\"}"},
    ]);
    let answer = ask(json!({"messages": messages, "tools": tools()})).unwrap();
    assert_eq!(answer.reason, FinishReason::Stop);
    assert!(answer.text.contains('7') && answer.calls.is_empty(), "{answer:?}");
}

#[test]
fn an_answer_without_a_call_is_text() {
    let answer = ask(json!({"messages": user("Hello!"), "tools": tools()})).unwrap();
    assert_eq!((answer.reason, answer.calls.len()), (FinishReason::Stop, 0));
    assert!(!answer.text.is_empty());
    // With "none" the model is not told of the tools.
    let none = ask(json!({"messages": user("Hello!"), "tools": tools(), "tool_choice": "none"})).unwrap();
    let without = ask(json!({"messages": user("Hello!")})).unwrap();
    let tokens = |usage: Usage| (usage.prompt_tokens, usage.completion_tokens);
    assert_eq!((none.text, tokens(none.usage)), (without.text, tokens(without.usage)));
}

#[test]
fn a_choice_is_kept() {
    // The model would not call anything by itself.
    let required = ask(json!({"messages": user("Hello!"), "tools": tools(), "tool_choice": "required"})).unwrap();
    assert_eq!(required.reason, FinishReason::ToolCalls, "{required:?}");
    assert!(!required.calls.is_empty() && required.text.is_empty());
    let named = json!({"type": "function", "function": {"name": "calculator"}});
    for parallel in [true, false] {
        let request = json!({"messages": user("What is the weather in Oslo?"), "tools": tools(), "tool_choice": named, "parallel_tool_calls": parallel});
        let answer = ask(request).unwrap();
        assert_eq!((answer.reason, answer.calls.len()), (FinishReason::ToolCalls, 1), "{answer:?}");
        assert_eq!(answer.calls[0].1, "calculator");
        assert!(arguments(&answer.calls[0])["expression"].is_string());
    }
}

#[test]
fn arguments_obey_their_schema() {
    let tools = json!([{"type": "function", "function": {"name": "set_alarm", "parameters": {
        "type": "object",
        "properties": {
            "day": {"enum": ["monday", "friday"]},
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            "repeat": {"type": "boolean"},
        },
        "required": ["day", "hour", "repeat"],
        "additionalProperties": false,
    }}}]);
    for seed in 0..3 {
        let request = json!({"messages": user("Wake me at 7 on Friday."), "tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "temperature": 1.2, "seed": seed});
        let answer = ask(request).unwrap();
        let arguments = arguments(&answer.calls[0]);
        assert!(["monday", "friday"].contains(&arguments["day"].as_str().unwrap()), "{arguments}");
        assert!((0..24).contains(&arguments["hour"].as_i64().unwrap()), "{arguments}");
        assert!(arguments["repeat"].is_boolean() && arguments.as_object().unwrap().len() == 3, "{arguments}");
    }
}

#[test]
fn a_call_that_is_cut_off_ends_by_length() {
    let whole = ask(json!({"messages": user("What is the weather in Oslo?"), "tools": tools()})).unwrap();
    let mut seen_name = false;
    for most in 1..whole.tokens.len() - 1 {
        let answer =
            ask(json!({"messages": user("What is the weather in Oslo?"), "tools": tools(), "max_tokens": most}))
                .unwrap();
        assert_eq!((answer.reason, answer.tokens.len()), (FinishReason::Length, most));
        seen_name |= !answer.calls.is_empty() && answer.calls[0].2 != whole.calls[0].2;
        for call in &answer.calls {
            assert!(whole.calls[0].2.starts_with(&call.2), "{call:?}");
        }
    }
    assert!(seen_name);
}

#[test]
fn bad_requests_name_their_field() {
    let oops = json!({"type": "function", "function": {"name": "missing"}});
    for (more, says) in [
        (json!({"tool_choice": oops, "tools": tools()}), "tool_choice names the function \"missing\""),
        (json!({"tool_choice": "required"}), "tool_choice is \"required\""),
        (json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}), "tools[0].function.name"),
        (json!({"tools": tools(), "parallel_tool_calls": "yes"}), "parallel_tool_calls"),
        (
            json!({"tools": tools(), "tool_choice": "required", "response_format": {"type": "json_object"}}),
            "tool_choice asks for a call",
        ),
        (json!({"tools": tools(), "tool_choice": "required", "ignore_eos": true}), "ignore_eos"),
        (json!({"reasoning_format": "xml"}), "reasoning_format"),
        (json!({"reasoning_format": "none", "thinking_token_budget": 3}), "thinking_token_budget"),
        (json!({"reasoning_format": "none", "include_reasoning": false}), "include_reasoning"),
        (json!({"thinking_token_budget": -1}), "thinking_token_budget"),
        (json!({"stop_token_ids": [1_000_000]}), "stop_token_ids has 1000000"),
        (json!({"stop_token_ids": (0..65).collect::<Vec<u32>>()}), "stop_token_ids has 65"),
    ] {
        let mut request = json!({"messages": user("Hi")});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = ask(request).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{error}");
        assert!(error.to_string().contains(says), "{error} / {says}");
    }
    let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"function": {}}]}]);
    let error = ask(json!({"messages": messages})).unwrap_err();
    assert!(error.to_string().contains("messages[1].tool_calls[0].function.name is null"), "{error}");
}

/// The demo model does not reason: a template of the test's opens the reasoning, and the budget closes it.
const THINKING: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}";

#[test]
fn reasoning_is_apart_and_has_a_budget() {
    let request =
        json!({"messages": user("Tell me a story."), "chat_template": THINKING, "max_tokens": 24, "ignore_eos": true});
    let with = |more: Value| {
        let mut request = request.clone();
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(request).unwrap()
    };
    // It never closes it by itself.
    let open = with(json!({}));
    assert_eq!((open.text.as_str(), open.reason), ("", FinishReason::Length));
    assert!(!open.reasoning.is_empty());
    assert_eq!(open.usage.completion_tokens_details.reasoning_tokens, 24);
    for budget in [0, 1, 7] {
        let answer = with(json!({"thinking_token_budget": budget}));
        assert_eq!(answer.tokens[..budget], open.tokens[..budget], "{answer:?}");
        assert!(open.reasoning.starts_with(answer.reasoning.trim_end()), "{answer:?}");
        assert!(!answer.text.is_empty() && !answer.text.contains("</think>"), "{answer:?}");
        let reasoning = answer.usage.completion_tokens_details.reasoning_tokens;
        assert!((budget..budget + 12).contains(&reasoning), "{answer:?}");
        assert_eq!(answer.tokens.len(), 24);
    }
    let kept = with(json!({"reasoning_format": "none"}));
    assert_eq!((kept.reasoning.as_str(), kept.tokens), ("", open.tokens.clone()));
    assert!(kept.text.contains(&open.reasoning));
    let dropped = with(json!({"include_reasoning": false}));
    assert_eq!((dropped.reasoning.as_str(), dropped.text.as_str()), ("", ""));
    // The template has closed it already.
    let none = with(json!({"chat_template_kwargs": {"enable_thinking": false}, "thinking_token_budget": 3}));
    assert_eq!((none.reasoning.as_str(), none.usage.completion_tokens_details.reasoning_tokens), ("", 0));
    assert!(!none.text.is_empty());
}

#[test]
fn what_stopped_an_answer_is_said() {
    let request = |more: Value| {
        let mut request = json!({"messages": user("Tell me a story.")});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(request).unwrap()
    };
    let whole = request(json!({}));
    assert_eq!(whole.stop_reason, None);
    let stop: String = whole.text.chars().skip(30).take(7).collect();
    let at = whole.text.find(&stop).unwrap();
    let answer = request(json!({"stop": [stop, "never said"]}));
    assert_eq!((answer.text.as_str(), answer.reason), (&whole.text[..at], FinishReason::Stop));
    assert_eq!(answer.stop_reason, Some(StopReason::Text(stop.clone())));
    let answer = request(json!({"stop": stop, "include_stop_str_in_output": true}));
    assert_eq!(answer.text, whole.text[..at + stop.len()]);
    // A token that comes for the first time in the middle.
    let at = (8..whole.tokens.len()).find(|at| !whole.tokens[..*at].contains(&whole.tokens[*at])).unwrap();
    let token = whole.tokens[at];
    let answer = request(json!({"stop_token_ids": [token]}));
    assert_eq!((answer.tokens.as_slice(), answer.reason), (&whole.tokens[..=at], FinishReason::Stop));
    assert_eq!(answer.stop_reason, Some(StopReason::Token(token)));
    assert!(whole.text.starts_with(&answer.text));
    let with = request(json!({"stop_token_ids": [token], "include_stop_str_in_output": true}));
    assert!(with.text.len() > answer.text.len() && whole.text.starts_with(&with.text), "{with:?}");
    // A stop string that was held back and a most number of tokens at once: it is the string that ended the answer.
    let two = request(json!({"max_tokens": at}));
    let end: String = two.text.chars().skip(two.text.chars().count() - 2).collect();
    let longer = format!("{end}\u{1F600}");
    if two.text.find(&end) == Some(two.text.len() - end.len()) {
        let answer = request(json!({"max_tokens": at, "stop": [end, longer]}));
        assert_eq!((answer.reason, answer.stop_reason), (FinishReason::Stop, Some(StopReason::Text(end))));
    }
}

/// A model whose template knows no tools is told of them by the engine.
#[test]
fn tools_without_a_template_for_them() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";
    let messages = json!([
        {"role": "user", "content": "What is the weather in Oslo?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
        {"role": "tool", "tool_call_id": "x", "content": "rain"},
    ]);
    let request = json!({"messages": messages, "tools": tools(), "chat_template": template});
    let prompt = ENGINE.with(|engine| engine.prompt(&ChatRequest::parse(request.clone()).unwrap().chat)).unwrap();
    assert!(
        prompt.contains("\"name\":\"get_weather\"")
            && prompt
                .contains("<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\"}}\n</tool_call>"),
        "{prompt}"
    );
    assert!(prompt.contains("<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>"), "{prompt}");
    let mut required = request;
    required["tool_choice"] = json!("required");
    let answer = ask(required).unwrap();
    assert_eq!(answer.reason, FinishReason::ToolCalls, "{answer:?}");
}

/// In tags, texts stand without quotes: the same grammar engine holds them to their schema, or says by name what it can't.
#[test]
fn texts_in_tags_obey_their_schema() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if tools %}<function=name>\n<parameter=key>{% endif %}<|im_start|>assistant\n";
    let ask = |schema: Value, seed: u64| {
        let tools = json!([{"type": "function", "function": {"name": "tag", "parameters": {
            "type": "object", "properties": {"text": schema}, "required": ["text"]}}}]);
        ask(
            json!({"messages": user("Tag it."), "tools": tools, "tool_choice": "required", "chat_template": template, "temperature": 1.2, "seed": seed}),
        )
    };
    for seed in 0..3 {
        let schema = json!({"type": "string", "pattern": "^[a-z]+-\\d{2}$", "minLength": 5, "maxLength": 9});
        let answer = ask(schema, seed).unwrap();
        let arguments = arguments(&answer.calls[0]);
        let text = arguments["text"].as_str().unwrap();
        let (name, number) = text.split_once('-').unwrap();
        assert!((5..=9).contains(&text.len()) && number.len() == 2 && number.parse::<u32>().is_ok(), "{text:?}");
        assert!(name.bytes().all(|c| c.is_ascii_lowercase()), "{text:?}");
    }
    let error = ask(json!({"type": "string", "format": "regex"}), 0).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    let says = "tool_choice: the function \"tag\": the property \"text\": the schema keyword \"format\"";
    assert!(error.message().starts_with(says), "{error}");
}
