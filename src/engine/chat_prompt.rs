//! From the messages of a request to the prompt, by the model's chat template or another one.

use serde_json::{Value, json};
use web_time::SystemTime;

use super::info::Warning;
use super::loaded::Engine;
use super::options::LoadOptions;
use super::request::ChatFields;
use crate::error::Result;
use crate::text::chat::{
    ChatTemplate, ChatTemplates, DEFAULT_CHAT_TEMPLATE, DEFAULT_TEMPLATE_NAME, TOOL_TEMPLATE_NAME,
};

/// Names under which messages hold what the model thought before it answered; the first counts.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// Variables that are fields of a request.
const FIELDS: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// The templates that a model's chats are written by.
pub(super) struct Templates {
    default: ChatTemplate,
    /// For chats with tools.
    tools: Option<ChatTemplate>,
}

impl Templates {
    /// The caller's, the model's own, or else ChatML, with a warning. The flag tells whether there is one of the first two kinds.
    pub fn of(own: &ChatTemplates, options: &LoadOptions, generates: bool) -> Result<(Self, bool, Vec<Warning>)> {
        if let Some(source) = &options.chat_template {
            return Ok((Self { default: ChatTemplate::new(source)?, tools: None }, true, Vec::new()));
        }
        let tools = own.get(TOOL_TEMPLATE_NAME).map(ChatTemplate::new).transpose()?;
        match own.get(DEFAULT_TEMPLATE_NAME) {
            Some(source) => Ok((Self { default: ChatTemplate::new(source)?, tools }, true, Vec::new())),
            None => {
                let warning = Warning {
                    code: "no_chat_template",
                    message: "the model has no chat template: chats are written in ChatML, which it may not have been trained \
                              with; load with the option chatTemplate if you know its format"
                        .to_owned(),
                };
                let warnings = if generates { vec![warning] } else { Vec::new() };
                Ok((Self { default: ChatTemplate::new(DEFAULT_CHAT_TEMPLATE)?, tools }, false, warnings))
            }
        }
    }

    fn for_chat(&self, with_tools: bool) -> &ChatTemplate {
        self.tools.as_ref().filter(|_| with_tools).unwrap_or(&self.default)
    }
}

impl Engine {
    /// The messages as the template writes them.
    pub fn prompt(&self, request: &ChatFields) -> Result<String> {
        if request.messages.is_empty() {
            bail!(InvalidRequest, "messages is empty, wanted at least one message");
        }
        if request.continue_final_message && request.add_generation_prompt == Some(true) {
            bail!(
                InvalidRequest,
                "continue_final_message and add_generation_prompt exclude each other: the last message is finished or it is not"
            );
        }
        let messages = request.messages.iter().enumerate().map(message).collect::<Result<Vec<Value>>>()?;
        if request.continue_final_message && messages.last().is_some_and(|last| last["role"] != "assistant") {
            bail!(InvalidRequest, "continue_final_message is true, and the last message is not the assistant's");
        }
        let tokenizer = self.tokenizer();
        let special = |id: Option<u32>| {
            let bytes = id.and_then(|id| tokenizer.token_bytes_with_control(id).ok()).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let mut variables = json!({
            "messages": messages,
            "add_generation_prompt": request.add_generation_prompt.unwrap_or(!request.continue_final_message),
            "bos_token": special(tokenizer.bos()),
            "eos_token": special(tokenizer.eos()),
        });
        if let Some(pad) = tokenizer.pad() {
            variables["pad_token"] = json!(special(Some(pad)));
        }
        if let Some(tools) = &request.tools {
            variables["tools"] = json!(tools);
        }
        for (name, value) in request.chat_template_kwargs.iter().flatten() {
            if FIELDS.contains(&name.as_str()) {
                bail!(
                    InvalidRequest,
                    "chat_template_kwargs has {name:?}, which is a field of the request; set it there"
                );
            }
            variables[name] = value.clone();
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        let now = now + self.0.utc_offset_seconds;
        let given = request.chat_template.as_deref().map(ChatTemplate::new).transpose()?;
        let template = match &given {
            Some(template) => template,
            None => self.0.templates.for_chat(request.tools.as_ref().is_some_and(|tools| !tools.is_empty())),
        };
        match request.continue_final_message {
            true => template.render_continued(&variables, now),
            false => template.render_at(&variables, now),
        }
    }
}

/// Checks a message and turns content that is given in parts into one text, as templates of text models want it.
fn message((index, message): (usize, &Value)) -> Result<Value> {
    let Some(fields) = message.as_object() else {
        bail!(InvalidRequest, "messages[{index}] is no object, wanted {{\"role\": …, \"content\": …}}");
    };
    let role = fields.get("role").and_then(Value::as_str);
    let Some("system" | "developer" | "user" | "assistant" | "tool") = role else {
        bail!(
            InvalidRequest,
            "messages[{index}].role is {}, wanted \"system\", \"user\", \"assistant\" or \"tool\"",
            fields.get("role").unwrap_or(&Value::Null)
        );
    };
    let mut message = message.clone();
    if role == Some("developer") {
        // OpenAI's newer name of the same role.
        message["role"] = json!("system");
    }
    match fields.get("content") {
        Some(Value::String(_)) => {}
        // A message that only calls tools has none.
        None | Some(Value::Null) if role == Some("assistant") && fields.contains_key("tool_calls") => {
            message["content"] = json!("");
        }
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(part, value)| match (&value["type"], &value["text"]) {
                (Value::String(kind), Value::String(text)) if kind == "text" => Ok(text.as_str()),
                _ => bail!(
                    InvalidRequest,
                    "messages[{index}].content[{part}] is no text; only parts of type \"text\" are supported"
                ),
            });
            message["content"] = json!(texts.collect::<Result<Vec<&str>>>()?.concat());
        }
        other => bail!(
            InvalidRequest,
            "messages[{index}].content is {}, wanted a string or an array of text parts",
            other.unwrap_or(&Value::Null)
        ),
    }
    // As transformers has it: one template reads one of these names, and another one another.
    if let Some(reasoning) = REASONING.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null())) {
        message["reasoning_content"] = reasoning.clone();
        if message.get("thinking").is_none() {
            message["thinking"] = reasoning.clone();
        }
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        // Templates take an object; OpenAI's API has its text.
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(Ok(object @ Value::Object(_))) = arguments.as_str().map(serde_json::from_str)
        {
            *arguments = object;
        }
    }
    Ok(message)
}
