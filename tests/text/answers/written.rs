//! Calls as every family writes them, from their arguments.

use serde_json::Map;

use super::*;

/// JSON with a space after each comma and colon.
pub(super) fn spaced(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{}: {}", json!(key), spaced(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// As the Gemma family writes values.
fn unquoted(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(|value| unquoted(value, quote)).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", unquoted(value, quote))).collect();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}

/// A call of `f` as a family writes it.
pub(super) fn written(format: &ToolFormat, template: &str, values: &Map<String, Value>) -> String {
    let arguments = spaced(&Value::Object(values.clone()));
    let call = format!("{{\"name\": \"f\", \"arguments\": {arguments}}}");
    // In tags a text has no quotes.
    let tagged = |tag: &dyn Fn(&str, &Value, &str) -> String| -> String {
        let plain = |value: &Value| value.as_str().map_or_else(|| spaced(value), str::to_owned);
        values.iter().map(|(key, value)| tag(key, value, &plain(value)) + "\n").collect()
    };
    let dsml = |block: &str| {
        let parameters = tagged(&|key, value, plain| {
            let is_text = value.is_string();
            format!("<｜DSML｜parameter name=\"{key}\" string=\"{is_text}\">{plain}</｜DSML｜parameter>")
        });
        format!("<｜DSML｜{block}>\n<｜DSML｜invoke name=\"f\">\n{parameters}</｜DSML｜invoke>\n</｜DSML｜{block}>")
    };
    let parameters = tagged(&|key, _, plain| format!("<parameter={key}>\n{plain}\n</parameter>"));
    let function = format!("<function=f>\n{parameters}</function>");
    match format.name {
        "hermes" | "gemma" | "generic" => format!("<tool_call>\n{call}\n</tool_call>"),
        "qwen3_coder" => format!("<tool_call>\n{function}\n</tool_call>"),
        "seed" => format!("<seed:tool_call>\n{function}\n</seed:tool_call>"),
        "minimax" => format!(
            "<minimax:tool_call>\n<invoke name=\"f\">\n{}</invoke>\n</minimax:tool_call>",
            tagged(&|key, _, plain| format!("<parameter name=\"{key}\">\n{plain}\n</parameter>"))
        ),
        "glm" => format!(
            "<tool_call>f\n{}</tool_call>",
            tagged(&|key, _, plain| format!("<arg_key>{key}</arg_key>\n<arg_value>{plain}</arg_value>"))
        ),
        "llama3" => format!("{{\"name\": \"f\", \"parameters\": {arguments}}}"),
        "mistral" if template == "[ARGS]" => format!("[TOOL_CALLS]f[ARGS]{arguments}"),
        "mistral" => format!("[TOOL_CALLS][{call}]"),
        "function_gemma" => {
            format!("<start_function_call>call:f{}<end_function_call>", unquoted(&json!(values), "<escape>"))
        }
        "gemma4" => format!("<|tool_call>call:f{}<tool_call|>", unquoted(&json!(values), "<|\"|>")),
        "phi" if template == "functools" => format!("functools[{call}]"),
        "phi" => format!("<|tool_call|>[{call}]<|/tool_call|>"),
        "deepseek" if template == "```json" => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        "deepseek" => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        "deepseek_v32" => dsml("function_calls"),
        "deepseek_v4" => dsml("tool_calls"),
        "kimi" => format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        "harmony" => format!("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{arguments}"),
        "jamba" => format!("<tool_calls>[\n{call}\n]</tool_calls>"),
        "cohere" => format!(
            "<|START_ACTION|>[\n    {{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {arguments}}}\n]<|END_ACTION|>"
        ),
        "nemotron" => format!("<TOOLCALL>[{call}]</TOOLCALL>"),
        "lfm2" => {
            let values: Vec<String> = values.iter().map(|(key, value)| format!("{key}={}", spaced(value))).collect();
            format!("<|tool_call_start|>[f({})]<|tool_call_end|>", values.join(", "))
        }
        name => panic!("how does {name} write a call?"),
    }
}
