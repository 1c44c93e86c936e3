//! From the messages of a request to the prompt, by the model's chat template or the request's own.

use serde_json::{Map, Value, json};
use web_time::SystemTime;

use super::request::ChatFields;
use crate::engine::load::info::Warning;
use crate::error::Result;
use crate::text::chat::{
    ChatTemplate, ChatTemplates, DEFAULT_CHAT_TEMPLATE, DEFAULT_TEMPLATE_NAME, TOOL_TEMPLATE_NAME,
};
use crate::text::reasoning::ReasoningMarkers;
use crate::text::tokenizer::Tokenizer;
use crate::text::tools::{ToolChoice, ToolFormat, Tools, as_text, instructions, template_has_tools};

/// The names that messages use for the model's reasoning; the first one found counts.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// Variables of templates that a request sets by fields of their own.
const FIELDS: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// A template, and what its text says about the model's answers.
pub(in crate::engine) struct Template {
    template: ChatTemplate,
    source: String,
    /// How the model writes calls.
    pub tool_format: &'static ToolFormat,
    /// `None` if the template has no markers of reasoning.
    pub reasoning: Option<ReasoningMarkers>,
    /// Whether it writes the tools that it is given.
    has_tools: bool,
    /// Whether it writes calls of earlier answers.
    has_calls: bool,
    /// Whether it knows the role `system`.
    has_system: bool,
}

impl Template {
    /// Compiles the Jinja text of a template; its errors are `chat_template`.
    pub fn new(source: &str) -> Result<Self> {
        let has_tools = template_has_tools(source);
        let of_template = ToolFormat::of_template(source);
        let is_generic = of_template.needs_tools_in_template && !has_tools;
        let tool_format = if is_generic { ToolFormat::GENERIC } else { of_template };
        Ok(Self {
            template: ChatTemplate::new(source)?,
            source: source.to_owned(),
            tool_format,
            reasoning: ReasoningMarkers::of_template(source),
            has_tools,
            has_calls: source.contains("tool_calls"),
            has_system: source.contains("system"),
        })
    }

    /// The Jinja text.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// The templates for chats with a model.
pub(in crate::engine) struct Templates {
    default: Template,
    /// For chats with tools.
    tools: Option<Template>,
}

/// A chat as a template has written it, and that template if the request brought it.
pub(in crate::engine) struct Rendered {
    /// The text that the model continues.
    pub prompt: String,
    own: Option<Template>,
    with_tools: bool,
    /// The beginning of the answer, if the prompt has it already.
    pub continued: Option<String>,
}

impl Rendered {
    /// The template that wrote it.
    pub fn template<'t>(&'t self, templates: &'t Templates) -> &'t Template {
        self.own.as_ref().unwrap_or_else(|| templates.for_chat(self.with_tools))
    }
}

impl Templates {
    /// The caller's template, else the model's, else ChatML with a warning. The flag is false for ChatML.
    pub fn of(own: &ChatTemplates, given: Option<&str>, generates: bool) -> Result<(Self, bool, Vec<Warning>)> {
        if let Some(source) = given {
            return Ok((Self { default: Template::new(source)?, tools: None }, true, Vec::new()));
        }
        let tools = own.get(TOOL_TEMPLATE_NAME).map(Template::new).transpose()?;
        match own.get(DEFAULT_TEMPLATE_NAME) {
            Some(source) => Ok((Self { default: Template::new(source)?, tools }, true, Vec::new())),
            None => {
                let warning = Warning {
                    code: "no_chat_template",
                    message: "the model has no chat template: chats are written in ChatML, which it may not have been trained \
                              with; load with the option chatTemplate if you know its format"
                        .to_owned(),
                };
                let warnings = if generates { vec![warning] } else { Vec::new() };
                Ok((Self { default: Template::new(DEFAULT_CHAT_TEMPLATE)?, tools }, false, warnings))
            }
        }
    }

    fn for_chat(&self, with_tools: bool) -> &Template {
        self.tools.as_ref().filter(|_| with_tools).unwrap_or(&self.default)
    }

    /// Writes the messages with the request's own template, or with one of these. Templates that ask for the date get local time from
    /// `utc_offset_seconds`.
    pub fn render(
        &self,
        request: &ChatFields,
        tools: &Tools,
        choice: &ToolChoice,
        tokenizer: &Tokenizer,
        utc_offset_seconds: i64,
    ) -> Result<Rendered> {
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
        let continued = match (request.continue_final_message, messages.last()) {
            (true, Some(last)) if last["role"] != "assistant" => {
                bail!(InvalidRequest, "continue_final_message is true, and the last message is not the assistant's")
            }
            (true, Some(last)) => Some(last["content"].as_str().unwrap_or_default().to_owned()),
            _ => None,
        };
        // The model doesn't hear of tools that it must not call.
        let with_tools = !tools.is_empty() && *choice != ToolChoice::None;
        let own = request.chat_template.as_deref().map(Template::new).transpose()?;
        let rendered = Rendered { prompt: String::new(), own, with_tools, continued };
        let template = rendered.template(self);
        let special = |id: Option<u32>| {
            let bytes = id.and_then(|id| tokenizer.token_bytes_with_control(id).ok()).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let mut variables = json!({
            "add_generation_prompt": request.add_generation_prompt.unwrap_or(!request.continue_final_message),
            "bos_token": special(tokenizer.bos()),
            "eos_token": special(tokenizer.eos()),
        });
        if let Some(pad) = tokenizer.pad() {
            variables["pad_token"] = json!(special(Some(pad)));
        }
        if let Some(tools) = request.tools.as_ref().filter(|tools| with_tools || tools.is_empty()) {
            variables["tools"] = json!(tools);
        }
        variables["messages"] = if template.has_tools {
            json!(messages)
        } else {
            let instructions = with_tools.then(|| instructions(tools));
            json!(as_text(&messages, instructions.as_deref(), template.has_system, template.has_calls))
        };
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
        let now = now + utc_offset_seconds;
        let render = |variables: &Value| {
            if request.continue_final_message {
                template.template.render_continued(variables, now)
            } else {
                template.template.render_at(variables, now)
            }
        };
        let prompt = match render(&variables) {
            // Most templates take the arguments of a call as an object. Some (DeepSeek's) take text and add to it.
            Err(error) if with_argument_texts(&mut variables["messages"]) => render(&variables).map_err(|_| error)?,
            prompt => prompt?,
        };
        Ok(Rendered { prompt, ..rendered })
    }
}

/// Turns the arguments of calls into JSON texts. Returns whether there were any.
fn with_argument_texts(messages: &mut Value) -> bool {
    let mut some = false;
    for message in messages.as_array_mut().into_iter().flatten() {
        for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(arguments) = call.pointer_mut("/function/arguments").filter(|arguments| arguments.is_object()) {
                *arguments = json!(arguments.to_string());
                some = true;
            }
        }
    }
    some
}

fn reasoning(message: &Map<String, Value>) -> Option<&Value> {
    REASONING.iter().find_map(|name| message.get(*name).filter(|value| !value.is_null()))
}

/// Checks a message, and joins content that comes in parts: templates of text models want one text.
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
        // A message that only calls tools, or only reasons, needs no content.
        None | Some(Value::Null)
            if role == Some("assistant") && (fields.contains_key("tool_calls") || reasoning(fields).is_some()) =>
        {
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
    // Some templates read one of these names and some the other, so both are set, as in transformers.
    if let Some(reasoning) = reasoning(fields) {
        message["reasoning_content"] = reasoning.clone();
        if message.get("thinking").is_none() {
            message["thinking"] = reasoning.clone();
        }
    }
    match message.get_mut("tool_calls") {
        None | Some(Value::Null) => {}
        Some(Value::Array(calls)) if role == Some("assistant") => {
            for (call, value) in calls.iter_mut().enumerate() {
                tool_call(&format!("messages[{index}].tool_calls[{call}]"), value)?;
            }
        }
        Some(Value::Array(_)) => {
            bail!(InvalidRequest, "messages[{index}].tool_calls is there, and the message is not the assistant's")
        }
        Some(other) => bail!(InvalidRequest, "messages[{index}].tool_calls is {other}, wanted an array"),
    }
    Ok(message)
}

/// Checks a call of an earlier answer. OpenAI's API has its arguments as text; templates take an object.
fn tool_call(at: &str, call: &mut Value) -> Result<()> {
    match call.pointer("/function/name") {
        Some(Value::String(_)) => {}
        other => bail!(InvalidRequest, "{at}.function.name is {}, wanted a string", other.unwrap_or(&Value::Null)),
    }
    let Some(arguments) = call.pointer_mut("/function/arguments") else {
        call["function"]["arguments"] = json!({});
        return Ok(());
    };
    match arguments {
        Value::Object(_) => {}
        Value::String(text) if text.trim().is_empty() => *arguments = json!({}),
        // Text that is no JSON object goes back to the model as it wrote it.
        Value::String(text) => {
            if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
                *arguments = object;
            }
        }
        Value::Null => *arguments = json!({}),
        other => bail!(InvalidRequest, "{at}.function.arguments is {other}, wanted an object or its JSON as a text"),
    }
    Ok(())
}
