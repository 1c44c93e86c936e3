//! For models whose template has no tools: our own text describes the functions and asks for Hermes' calls.

use serde_json::{Value, json};

use super::definition::Tools;

/// The description of the functions for models whose template has none.
pub fn instructions(tools: &Tools) -> String {
    let mut text = String::from(
        "You can call functions. Each line between <tools> and </tools> describes one; its parameters are a JSON schema.\n<tools>\n",
    );
    for tool in tools.iter() {
        let mut described = json!({"name": tool.name});
        if let Some(description) = &tool.description {
            described["description"] = json!(description);
        }
        described["parameters"] = Value::Object(tool.parameters.clone());
        text.push_str(&described.to_string());
        text.push('\n');
    }
    text.push_str(
        "</tools>\nTo call a function, answer with nothing but its name and arguments, in this form:\n\
         <tool_call>\n{\"name\": \"name of the function\", \"arguments\": {\"name of a parameter\": \"value\"}}\n</tool_call>\n\
         The result then comes in <tool_response>. Without a function to call, answer in plain words.",
    );
    text
}

/// The messages of a chat with tools, for a template without tools. The system message describes the functions. Calls and results become
/// text, unless the template writes them.
pub fn as_text(messages: &[Value], instructions: Option<&str>, has_system: bool, has_calls: bool) -> Vec<Value> {
    let mut rewritten: Vec<Value> = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        if has_calls {
            rewritten.push(message.clone());
            continue;
        }
        let content = message["content"].as_str().unwrap_or_default();
        let mut message = message.clone();
        if let Some(calls) = message.get("tool_calls").and_then(Value::as_array) {
            let calls = calls.iter().map(|call| {
                let function = &call["function"];
                let written = json!({"name": function["name"], "arguments": function["arguments"]});
                format!("<tool_call>\n{written}\n</tool_call>")
            });
            let lines: Vec<String> =
                (!content.is_empty()).then(|| content.to_owned()).into_iter().chain(calls).collect();
            message["content"] = json!(lines.join("\n"));
            message["tool_calls"] = Value::Null;
        } else if message["role"] == "tool" {
            let result = format!("<tool_response>\n{content}\n</tool_response>");
            // Templates without tools require user and assistant to alternate.
            if let Some(last) = rewritten.last_mut().filter(|last| last["role"] == "user") {
                last["content"] = json!(format!("{}\n{result}", last["content"].as_str().unwrap_or_default()));
                continue;
            }
            message = json!({"role": "user", "content": result});
        }
        rewritten.push(message);
    }
    let Some(instructions) = instructions else { return rewritten };
    let role = if has_system { "system" } else { "user" };
    match rewritten.iter_mut().find(|message| message["role"] == role) {
        Some(message) => {
            let content = message["content"].as_str().unwrap_or_default();
            message["content"] = if has_system {
                json!(format!("{content}\n\n{instructions}"))
            } else {
                json!(format!("{instructions}\n\n{content}"))
            };
        }
        None => rewritten.insert(0, json!({"role": role, "content": instructions})),
    }
    rewritten
}
