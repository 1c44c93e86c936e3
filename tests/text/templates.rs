//! Chat templates against Python's Jinja and transformers, and their errors.
//!
//! The golden files and how they were made: tests/golden/text/README.md.

use std::path::{Path, PathBuf};

use crate::support::skip;
use rillm::error::Code;
use rillm::text::chat::{ChatTemplate, DEFAULT_CHAT_TEMPLATE};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text")
}

fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

fn render(template: &str, context: &Value, now: i64) -> Result<String, rillm::error::Error> {
    ChatTemplate::new(template)?.render_at(context, now)
}

#[test]
fn templates_render_as_python_renders_them() {
    let golden = read_json(&folder().join("jinja.json"));
    let (context, now) = (&golden["context"], golden["now"].as_i64().unwrap());
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 600);
    for case in cases {
        let template = case["template"].as_str().unwrap();
        match render(template, context, now) {
            Ok(got) => assert_eq!(got, case["expected"].as_str().unwrap(), "{template}"),
            Err(error) => panic!("{template}: {error}"),
        }
    }
    for case in golden["refused"].as_array().unwrap() {
        let template = case["template"].as_str().unwrap();
        match render(template, context, now) {
            Ok(got) => panic!("{template} gave {got:?}, Python refuses it: {}", case["error"]),
            Err(error) => assert_eq!(error.code(), Code::ChatTemplate, "{template}"),
        }
    }
    for case in golden["known_differences"].as_array().unwrap() {
        let template = case["template"].as_str().unwrap();
        let same = render(template, context, now).is_ok_and(|got| got == case["expected"].as_str().unwrap());
        assert!(
            !same,
            "{template} is no difference any more: take it off the list in scripts/golden/chat_templates.py"
        );
    }
}

#[test]
fn unfinished_messages_go_on_as_transformers_lets_them() {
    let golden = read_json(&folder().join("continued.json"));
    for case in golden["cases"].as_array().unwrap() {
        let template = ChatTemplate::new(case["template"].as_str().unwrap()).unwrap();
        let got = template.render_continued(&case["context"], 0);
        match case["expected"].as_str() {
            Some(expected) => assert_eq!(got.unwrap(), expected, "{case}"),
            None => assert_eq!(got.unwrap_err().code(), Code::ChatTemplate, "{case}"),
        }
    }
    let template = ChatTemplate::new("{{ messages }}").unwrap();
    for context in [json!({}), json!({"messages": []}), json!({"messages": [{"role": "assistant", "content": null}]})] {
        assert_eq!(template.render_continued(&context, 0).unwrap_err().code(), Code::InvalidRequest, "{context}");
    }
}

#[test]
fn published_templates_render_exactly() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/chat-templates.json");
    if !Path::new(path).exists() {
        skip::skipped(&format!("published chat templates: {path} is not there"));
        return;
    }
    // The day that the expected texts were made on: 2025-07-10.
    let today = 1_752_105_600;
    let cases = read_json(Path::new(path));
    let cases = cases.as_array().unwrap();
    for case in cases {
        match render(case["template"].as_str().unwrap(), &case["context"], today) {
            Ok(got) => assert_eq!(got, case["expected"].as_str().unwrap(), "{}", case["name"]),
            Err(error) => panic!("{}: {error}", case["name"]),
        }
    }
    println!("{} published templates", cases.len());
}

#[test]
fn errors_of_templates_have_a_line_and_a_cause() {
    let message = |template: &str| ChatTemplate::new(template).and_then(|t| t.render(&json!({}))).unwrap_err();
    let raised = message("a\nb\n{{ raise_exception('Roles must alternate') }}");
    assert_eq!(raised.code(), Code::ChatTemplate);
    assert!(raised.message().contains("line 3: Roles must alternate"), "{raised}");
    assert!(message("\n{% if %}").message().contains("does not compile in line 2"));
    assert!(message("{{ strftime_now('%Y') }}").message().contains("no time was given"));
    assert!(message("{{ strftime_now('%Q') }}").code() == Code::ChatTemplate);
    let no_object = ChatTemplate::new("").unwrap().render(&json!([1])).unwrap_err();
    assert_eq!(no_object.code(), Code::ChatTemplate);
    let nested = message("{% macro m() %}{{ x.y }}{% endmacro %}\n{{ m() }}");
    assert!(nested.message().contains("undefined"), "{nested}");
}

#[test]
fn templates_that_would_not_end_are_stopped() {
    let refused = |template: &str, reason: &str| {
        let error = render(template, &json!({"text": "x".repeat(100_000)}), 0).unwrap_err();
        assert_eq!(error.code(), Code::ChatTemplate, "{error}");
        assert!(error.message().contains(reason), "{error}");
    };
    let nested = "{% for i in range(9999) %}".repeat(3) + "x" + &"{% endfor %}".repeat(3);
    refused(&nested, "steps");
    refused("{% for i in range(99999) %}{{ text }}{% endfor %}", "bytes");
    refused("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "recursion");
    refused("{% include 'other' %}", "other");
    refused("{% extends text %}", "template");
    // A long chat is far from the limit.
    let messages: Vec<Value> =
        (0..10_000).map(|i| json!({"role": "user", "content": format!("message {i}")})).collect();
    let context = json!({"messages": messages, "add_generation_prompt": true});
    let text = render(DEFAULT_CHAT_TEMPLATE, &context, 0).unwrap();
    assert_eq!(text.matches("<|im_start|>user").count(), 10_000);
}

#[test]
fn the_default_template_is_chatml() {
    let template = ChatTemplate::new(DEFAULT_CHAT_TEMPLATE).unwrap();
    let context = json!({
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "add_generation_prompt": true,
    });
    let wanted = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(template.render(&context).unwrap(), wanted);
}
