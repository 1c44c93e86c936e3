//! From a chat request to the prompt: the model's template, another one, its variables, and messages that go on.

use crate::support::files::golden;
use rillm::engine::folder::MemoryFolder;
use rillm::engine::request::ChatRequest;
use rillm::engine::{Engine, LoadOptions};
use rillm::error::{Code, Error};
use serde_json::{Value, json};

/// A tiny Llama of a folder, with these files about chats.
fn engine(files: &[(&str, &str)], options: &LoadOptions) -> Result<Engine, Error> {
    let path = golden("folders/llama_sharded_f16");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let names = std::fs::read_dir(&path).unwrap().map(name).filter(|name| name != "chat_template.jinja");
    let mut all: Vec<(String, Vec<u8>)> =
        names.map(|name| (name.clone(), std::fs::read(path.join(name)).unwrap())).collect();
    all.retain(|(name, _)| !files.iter().any(|(other, _)| other == name));
    all.extend(files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())));
    let folder = MemoryFolder::new(all);
    pollster::block_on(Engine::load_from(&folder, None, options, &mut |_| Ok(())))
}

fn prompt(engine: &Engine, request: Value) -> Result<String, Error> {
    engine.prompt(&ChatRequest::parse(request)?.chat)
}

fn hi() -> Value {
    json!([{"role": "user", "content": "Hi"}])
}

const OWN: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}\
                   {% if add_generation_prompt %}[assistant]{% if enable_thinking is false %}<no>{% endif %}{% endif %}";

#[test]
fn requests_choose_and_fill_the_template() {
    let engine = engine(&[("chat_template.jinja", OWN)], &LoadOptions::default()).unwrap();
    assert!(engine.info().has_chat_template && engine.info().warnings.is_empty());
    let given = |more: Value| {
        let mut request = json!({"messages": hi()});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        prompt(&engine, request)
    };
    let text = |more: Value| given(more).unwrap();
    assert_eq!(text(json!({})), "[user]Hi[assistant]");
    assert_eq!(text(json!({"add_generation_prompt": false})), "[user]Hi");
    assert_eq!(text(json!({"chat_template_kwargs": {"enable_thinking": false}})), "[user]Hi[assistant]<no>");
    assert_eq!(text(json!({"chat_template": "{{ x }}", "chat_template_kwargs": {"x": [1, "é"]}})), "[1, 'é']");
    assert!(text(json!({"chat_template": "{{ strftime_now('%Y') }}"})).starts_with("20"));
    assert_eq!(text(json!({"chat_template": "{% generation %}a{% endgeneration %}"})), "a");
    let going_on = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]);
    let continued = text(json!({"messages": going_on, "continue_final_message": true}));
    assert_eq!(continued, "[user]Hi[assistant]Well, ");
    // Names of thoughts, and arguments of calls, as templates read them.
    let template = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|\
                    {% for c in m.tool_calls %}{{ c.function.arguments.city }}{% endfor %}{% endfor %}";
    let call = json!([{
        "role": "assistant", "content": "", "reasoning": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"city\": \"Rome\"}"}}],
    }]);
    assert_eq!(text(json!({"messages": call, "chat_template": template})), "hm|hm|Rome");
    // An answer that is cut while it thinks has no content, and can be handed back.
    let cut = json!([{"role": "assistant", "content": null, "refusal": null, "reasoning_content": "hm"}]);
    assert_eq!(text(json!({"messages": cut, "chat_template": "{{ messages[0].content == '' }}"})), "True");

    let refused = |more: Value, code: Code, wanted: &str| {
        let error = given(more.clone()).expect_err(&more.to_string());
        assert_eq!(error.code(), code, "{more}: {error}");
        assert!(error.message().contains(wanted), "{error} does not say {wanted}");
    };
    refused(json!({"continue_final_message": true}), Code::InvalidRequest, "not the assistant's");
    refused(json!({"messages": [{"role": "assistant", "content": null}]}), Code::InvalidRequest, "content is null");
    let both = json!({"messages": going_on, "continue_final_message": true, "add_generation_prompt": true});
    refused(both, Code::InvalidRequest, "exclude each other");
    refused(json!({"chat_template_kwargs": {"messages": []}}), Code::InvalidRequest, "\"messages\"");
    refused(json!({"chat_template_kwargs": 7}), Code::InvalidRequest, "chat_template_kwargs");
    refused(json!({"chat_template": "{% if %}"}), Code::ChatTemplate, "does not compile");
    refused(json!({"chat_template": "{{ raise_exception('no') }}"}), Code::ChatTemplate, "no");
}

#[test]
fn a_model_without_a_template_gets_chatml_and_a_warning() {
    let without = engine(&[], &LoadOptions::default()).unwrap();
    let info = without.info();
    assert!(!info.has_chat_template);
    assert_eq!(info.warnings.iter().map(|warning| warning.code).collect::<Vec<_>>(), ["no_chat_template"]);
    let chatml = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(prompt(&without, json!({"messages": hi()})).unwrap(), chatml);
    // The caller's template stands in for the model's, or for the one that is missing.
    let options =
        LoadOptions { chat_template: Some("<{{ messages[0].content }}>".to_owned()), ..LoadOptions::default() };
    for files in [&[][..], &[("chat_template.jinja", OWN)]] {
        let given = engine(files, &options).unwrap();
        assert!(given.info().has_chat_template && given.info().warnings.is_empty());
        assert_eq!(prompt(&given, json!({"messages": hi()})).unwrap(), "<Hi>");
    }
    let broken = LoadOptions { chat_template: Some("{% if %}".to_owned()), ..LoadOptions::default() };
    assert_eq!(engine(&[], &broken).err().unwrap().code(), Code::ChatTemplate);
}

#[test]
fn a_chat_with_tools_takes_the_template_for_tools() {
    let config = r#"{"chat_template": [
        {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with {{ tools | length }}"}
    ]}"#;
    let engine = engine(&[("tokenizer_config.json", config)], &LoadOptions::default()).unwrap();
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    assert_eq!(prompt(&engine, json!({"messages": hi()})).unwrap(), "plain");
    assert_eq!(prompt(&engine, json!({"messages": hi(), "tools": []})).unwrap(), "plain");
    assert_eq!(prompt(&engine, json!({"messages": hi(), "tools": tools})).unwrap(), "with 1");
}
