//! Wrong values of every field that a request may have, settings that contradict each other, and numbers that are none: each ends in
//! its error, before or at the token concerned, and the engine goes on.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use rillm::engine::request::{ChatRequest, CompletionRequest};
use rillm::engine::source::MemorySource;
use rillm::engine::{Engine, Generation, LoadOptions, LogitsProcessor};
use rillm::{Code, Result};
use serde_json::{Value, json};

use crate::support::engines::exact_on_cpu;

fn engine(change: impl Fn(&mut Vec<u8>)) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny_llama/tied-f32.gguf");
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    let options = LoadOptions { max_sequences: Some(2), ..Default::default() };
    pollster::block_on(Engine::load(&MemorySource::new(bytes), &exact_on_cpu(&options), &mut |_| Ok(()))).unwrap()
}

fn start(engine: &Engine, is_chat: bool, fields: &Value) -> Result<Generation> {
    let base =
        if is_chat { json!({"messages": [{"role": "user", "content": "?"}]}) } else { json!({"prompt": [1, 2, 3]}) };
    let mut request = base;
    let own = fields.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(own);
    if is_chat {
        engine.chat(ChatRequest::parse(request)?)
    } else {
        engine.complete(CompletionRequest::parse(request)?)
    }
}

/// The fields that a request may have.
fn known(is_chat: bool) -> BTreeSet<String> {
    let names = if is_chat { ChatRequest::field_names() } else { CompletionRequest::field_names() };
    names.unwrap().into_iter().map(str::to_owned).collect()
}

enum Where {
    Chat,
    Completion,
    Both,
}
use Where::{Both, Chat, Completion};

/// A field, where it is, and values that it can't have.
fn wrong_values() -> Vec<(&'static str, Where, Vec<Value>)> {
    let no_flag = || vec![json!("yes"), json!(1), json!([])];
    let no_number = || vec![json!("1"), json!(true), json!([1]), json!({})];
    let numbers = |more: &[Value]| [no_number(), more.to_vec()].concat();
    let no_list = || vec![json!("a"), json!(3), json!({"a": 1}), json!([{}])];
    vec![
        ("forced_bos_token_id", Completion, vec![json!(true), json!(-1), json!(1.5), json!([1]), json!({}), json!(3)]),
        ("src_lang", Completion, vec![json!(true), json!(1), json!(["fra_Latn"]), json!({}), json!("fra_Latn")]),
        ("messages", Chat, vec![json!("hello"), json!({}), json!(1)]),
        (
            "tools",
            Chat,
            vec![json!("a"), json!({}), json!([1]), json!([{"type": "function"}]), json!([{"type": "robot"}])],
        ),
        (
            "tool_choice",
            Chat,
            vec![json!("maybe"), json!(1), json!({"type": "function", "function": {"name": "nobody"}})],
        ),
        ("parallel_tool_calls", Chat, no_flag()),
        ("chat_template", Chat, vec![json!(1), json!({})]),
        ("chat_template_kwargs", Chat, vec![json!("a"), json!([1]), json!(1)]),
        ("add_generation_prompt", Chat, no_flag()),
        ("continue_final_message", Chat, no_flag()),
        ("reasoning_format", Chat, vec![json!("some"), json!(1)]),
        ("include_reasoning", Chat, no_flag()),
        ("thinking_token_budget", Chat, numbers(&[json!(-1), json!(1.5)])),
        ("logprobs", Chat, vec![json!(3), json!("yes")]),
        ("top_logprobs", Chat, vec![json!(2), json!(21), json!(-1), json!(0.5), json!("2")]),
        (
            "prompt",
            Completion,
            vec![json!(7), json!({}), json!([-1]), json!([1.5]), json!(["a"]), json!([[1]]), json!([]), json!(true)],
        ),
        ("logprobs", Completion, vec![json!(true), json!(21), json!(-1), json!(0.5), json!("2")]),
        ("max_tokens", Both, numbers(&[json!(0), json!(-1), json!(1.5), json!(1e30)])),
        ("max_completion_tokens", Chat, numbers(&[json!(0), json!(-1), json!(1.5)])),
        ("max_completion_tokens", Completion, vec![json!(4)]),
        (
            "stop",
            Both,
            vec![json!(1), json!([1]), json!({}), json!(""), json!(["a", ""]), json!(["a", "b", "c", "d", "e"])],
        ),
        (
            "stop_token_ids",
            Both,
            vec![json!("a"), json!(1), json!([-1]), json!([1.5]), json!([4_000_000_000u32]), json!(vec![1; 65])],
        ),
        ("include_stop_str_in_output", Both, no_flag()),
        ("ignore_eos", Both, no_flag()),
        ("temperature", Both, numbers(&[json!(-0.1), json!(2.1), json!(1e39)])),
        ("top_p", Both, numbers(&[json!(0), json!(-1), json!(1.1)])),
        ("top_k", Both, numbers(&[json!(-1), json!(1.5), json!(5_000_000_000u64)])),
        ("min_p", Both, numbers(&[json!(-0.1), json!(1)])),
        ("dynatemp_range", Both, numbers(&[json!(-0.1), json!(2.1)])),
        ("dynatemp_exponent", Both, numbers(&[json!(-0.1), json!(101)])),
        ("top_n_sigma", Both, numbers(&[json!(-0.1), json!(101)])),
        ("typical_p", Both, numbers(&[json!(-0.1), json!(1.1)])),
        ("xtc_probability", Both, numbers(&[json!(-0.1), json!(1.1)])),
        ("xtc_threshold", Both, numbers(&[json!(-0.1)])),
        ("mirostat", Both, numbers(&[json!(1), json!(3), json!(-1)])),
        ("mirostat_tau", Both, numbers(&[json!(-1)])),
        ("mirostat_eta", Both, numbers(&[json!(-1)])),
        ("seed", Both, numbers(&[json!(1.5), json!(1e30)])),
        (
            "logit_bias",
            Both,
            vec![
                json!("a"),
                json!([1]),
                json!({"a": 1}),
                json!({"1": "x"}),
                json!({"-1": 1}),
                json!({"99999999": 1}),
                json!({"1": 1e39}),
            ],
        ),
        ("suppress_tokens", Both, vec![json!("a"), json!(1), json!([-1]), json!([1.5]), json!([4_000_000_000u32])]),
        ("bad_words", Both, [no_list(), vec![json!([""]), json!([1])]].concat()),
        ("min_tokens", Both, numbers(&[json!(-1), json!(1.5)])),
        ("repetition_penalty", Both, numbers(&[json!(0), json!(-1)])),
        ("frequency_penalty", Both, numbers(&[json!(-2.1), json!(2.1)])),
        ("presence_penalty", Both, numbers(&[json!(-2.1), json!(2.1)])),
        ("repeat_last_n", Both, numbers(&[json!(-2), json!(1.5)])),
        ("dry_multiplier", Both, numbers(&[json!(-1)])),
        ("dry_base", Both, no_number()),
        ("dry_allowed_length", Both, numbers(&[json!(-1), json!(1.5)])),
        ("dry_penalty_last_n", Both, numbers(&[json!(-2), json!(1.5)])),
        ("dry_sequence_breakers", Both, no_list()),
        (
            "response_format",
            Both,
            vec![json!("json"), json!({}), json!({"type": "xml"}), json!({"type": "json_schema"}), json!([])],
        ),
        (
            "structured_outputs",
            Both,
            vec![
                json!("json"),
                json!({}),
                json!({"regex": 1}),
                json!({"xml": "a"}),
                json!({"regex": "a", "choice": ["b"]}),
            ],
        ),
        (
            "speculation",
            Both,
            vec![
                json!("prompt_lookup"),
                json!({}),
                json!({"type": "oracle"}),
                json!({"type": "prompt_lookup", "max_tokens": 0}),
                json!({"type": "draft_model"}),
            ],
        ),
        (
            "context_shift",
            Both,
            vec![json!("yes"), json!(3), json!({"sinks": -1}), json!({"sinks": 1_000_000}), json!({"sink": 1})],
        ),
        ("n", Both, numbers(&[json!(0), json!(129), json!(-1), json!(1.5)])),
        ("adapters", Both, vec![json!("a"), json!(1), json!([]), json!({"a": "1"}), json!({"a": null})]),
        // Fields of OpenAI's API that this one does not have.
        ("best_of", Completion, vec![json!(2)]),
        ("echo", Completion, vec![json!(true)]),
        ("suffix", Completion, vec![json!("a")]),
        ("prompt_logprobs", Both, vec![json!(1)]),
        ("modalities", Chat, vec![json!(["audio"])]),
        ("logitsProcessor", Both, vec![json!("a")]),
    ]
}

#[test]
fn wrong_values_are_refused_by_the_name_of_their_field() {
    let engine = engine(|_| {});
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for (name, at, values) in wrong_values() {
        let requests: &[bool] = match at {
            Chat => &[true],
            Completion => &[false],
            Both => &[true, false],
        };
        for (is_chat, value) in requests.iter().flat_map(|is_chat| values.iter().map(|value| (*is_chat, value))) {
            seen[usize::from(is_chat)].insert(name.to_owned());
            let mut fields = json!({});
            fields[name] = value.clone();
            // Where a field only means something beside another one, its value is looked at all the same.
            let what = format!("{name} = {value}, chat: {is_chat}");
            let error = match start(&engine, is_chat, &fields) {
                Err(error) => error,
                Ok(_) => panic!("{what} is taken"),
            };
            let codes = [Code::InvalidRequest, Code::ChatTemplate];
            assert!(codes.contains(&error.code()), "{what}: {error}");
            // A prompt without tokens is no field with a wrong value, and its message says so in words.
            assert!(error.message().contains(name), "{what}: {error}");
        }
    }
    for is_chat in [true, false] {
        let missing: Vec<String> = known(is_chat).difference(&seen[usize::from(is_chat)]).cloned().collect();
        assert!(missing.is_empty(), "no wrong values are tried of {missing:?}");
    }
    pollster::block_on(start(&engine, true, &json!({"max_tokens": 2})).unwrap().next()).unwrap();
}

#[test]
fn contradictions_are_refused() {
    let engine = engine(|_| {});
    let lookup = json!({"type": "prompt_lookup"});
    let object = json!({"type": "json_object"});
    for (is_chat, fields, names) in [
        (true, json!({"max_tokens": 1, "max_completion_tokens": 1}), ["max_tokens", "max_completion_tokens"]),
        (true, json!({"logprobs": false, "top_logprobs": 1}), ["logprobs", "top_logprobs"]),
        (true, json!({"logprobs": true, "temperature": 0, "speculation": lookup}), ["logprobs", "speculation"]),
        (false, json!({"logprobs": 0, "temperature": 0, "speculation": lookup}), ["logprobs", "speculation"]),
        (false, json!({"temperature": 1, "speculation": lookup}), ["temperature", "speculation"]),
        (false, json!({"temperature": 0, "speculation": lookup, "logit_bias": {"5": 1}}), ["bias", "speculation"]),
        (false, json!({"ignore_eos": true, "response_format": object}), ["response_format", "ignore_eos"]),
        (
            false,
            json!({"structured_outputs": {"regex": "a"}, "response_format": object}),
            ["response_format", "structured_outputs"],
        ),
        (
            true,
            json!({"reasoning_format": "none", "include_reasoning": false}),
            ["reasoning_format", "include_reasoning"],
        ),
        (
            true,
            json!({"add_generation_prompt": true, "continue_final_message": true}),
            ["add_generation_prompt", "continue_final_message"],
        ),
    ] {
        let error = start(&engine, is_chat, &fields).err().unwrap_or_else(|| panic!("{fields} is taken"));
        assert_eq!(error.code(), Code::InvalidRequest, "{fields}: {error}");
        assert!(names.iter().all(|name| error.message().contains(name)), "{fields}: {error}");
    }
}

struct Unchanged;

impl LogitsProcessor for Unchanged {
    fn process(&self, logits: Vec<f32>, _: Vec<u32>, _: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>> {
        async move { Ok(Some(logits)) }.boxed_local()
    }
}

/// However tokens are chosen and whatever comes with them.
#[test]
fn logits_that_are_no_numbers_are_an_error_at_their_token() {
    // The last weight of the last tensor, which every logit depends on.
    let broken = engine(|bytes| {
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    for fields in [
        json!({"temperature": 0}),
        json!({"temperature": 0, "logprobs": 5}),
        json!({"top_p": 0.9, "logprobs": 0}),
        json!({"n": 2}),
        json!({"n": 3, "top_k": 4, "logprobs": 20}),
        json!({"temperature": 0, "speculation": {"type": "prompt_lookup"}}),
    ] {
        for is_processed in [false, true] {
            if is_processed && fields.get("speculation").is_some() {
                continue;
            }
            let mut generation = start(&broken, false, &fields).unwrap();
            if is_processed {
                generation = generation.with_logits_processor(Rc::new(Unchanged)).unwrap();
            }
            let error = pollster::block_on(generation.next()).unwrap_err();
            assert_eq!(error.code(), Code::NumericalError, "{fields}: {error}");
            assert!(error.message().contains("token 0"), "{error}");
            assert!(pollster::block_on(generation.next()).unwrap().is_none(), "and that was all");
        }
    }
}
