//! Calls as every family writes them, from their arguments.

use serde_json::Map;

use super::*;

/// JSON with a space behind each comma and colon.
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
pub(super) fn written(format: ToolFormat, template: &str, values: &Map<String, Value>) -> String {
    use ToolFormat::*;
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
    match format {
        Hermes | Gemma | Generic => format!("<tool_call>\n{call}\n</tool_call>"),
        Qwen3Coder => format!("<tool_call>\n{function}\n</tool_call>"),
        Seed => format!("<seed:tool_call>\n{function}\n</seed:tool_call>"),
        MiniMax => format!(
            "<minimax:tool_call>\n<invoke name=\"f\">\n{}</invoke>\n</minimax:tool_call>",
            tagged(&|key, _, plain| format!("<parameter name=\"{key}\">\n{plain}\n</parameter>"))
        ),
        Glm => format!(
            "<tool_call>f\n{}</tool_call>",
            tagged(&|key, _, plain| format!("<arg_key>{key}</arg_key>\n<arg_value>{plain}</arg_value>"))
        ),
        Llama3 => format!("{{\"name\": \"f\", \"parameters\": {arguments}}}"),
        Mistral if template == "[ARGS]" => format!("[TOOL_CALLS]f[ARGS]{arguments}"),
        Mistral => format!("[TOOL_CALLS][{call}]"),
        FunctionGemma => {
            format!("<start_function_call>call:f{}<end_function_call>", unquoted(&json!(values), "<escape>"))
        }
        Gemma4 => format!("<|tool_call>call:f{}<tool_call|>", unquoted(&json!(values), "<|\"|>")),
        Phi if template == "functools" => format!("functools[{call}]"),
        Phi => format!("<|tool_call|>[{call}]<|/tool_call|>"),
        DeepSeek if template == "```json" => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        DeepSeek => format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        DeepSeekV32 => dsml("function_calls"),
        DeepSeekV4 => dsml("tool_calls"),
        Kimi => format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        Harmony => format!("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{arguments}"),
        Jamba => format!("<tool_calls>[\n{call}\n]</tool_calls>"),
        Cohere => format!(
            "<|START_ACTION|>[\n    {{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {arguments}}}\n]<|END_ACTION|>"
        ),
        Nemotron => format!("<TOOLCALL>[{call}]</TOOLCALL>"),
        Lfm2 => {
            let values: Vec<String> = values.iter().map(|(key, value)| format!("{key}={}", spaced(value))).collect();
            format!("<|tool_call_start|>[f({})]<|tool_call_end|>", values.join(", "))
        }
    }
}
