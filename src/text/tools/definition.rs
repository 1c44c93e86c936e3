//! The functions that a request offers, and whether the model must call one: OpenAI's `tools` and `tool_choice`, checked.

use serde_json::{Map, Value};

use crate::error::Result;

/// As in OpenAI's API.
const MAX_TOOLS: usize = 128;
const MAX_NAME: usize = 64;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// 1 to 64 letters, digits, `_`, `-` and `.`; unique in the request.
    pub name: String,
    /// What the function does, for the model.
    pub description: Option<String>,
    /// A JSON schema of an object; an empty one allows any arguments.
    pub parameters: Map<String, Value>,
}

/// The functions of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools(Vec<Tool>);

/// Whether the model may or must call a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model must not call one.
    None,
    /// The model decides.
    #[default]
    Auto,
    /// The model must call at least one.
    Required,
    /// The model must call this one.
    Function(String),
}

impl Tools {
    /// Checks a request's `tools`.
    pub fn new(tools: &[Value]) -> Result<Self> {
        if tools.len() > MAX_TOOLS {
            bail!(InvalidRequest, "tools has {} functions, wanted at most {MAX_TOOLS}", tools.len());
        }
        let mut checked: Vec<Tool> = Vec::with_capacity(tools.len());
        for (index, value) in tools.iter().enumerate() {
            let tool = tool(&format!("tools[{index}]"), value)?;
            if let Some(first) = checked.iter().position(|other| other.name == tool.name) {
                bail!(InvalidRequest, "tools[{index}].function.name is {:?}, as that of tools[{first}]", tool.name);
            }
            checked.push(tool);
        }
        Ok(Self(checked))
    }

    /// Whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All functions, in the order of the request.
    pub fn iter(&self) -> std::slice::Iter<'_, Tool> {
        self.0.iter()
    }

    /// The function with this name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.name == name)
    }
}

impl ToolChoice {
    /// Checks a request's `tool_choice` against its tools.
    pub fn new(choice: Option<&Value>, tools: &Tools) -> Result<Self> {
        let choice = match choice {
            None | Some(Value::Null) => Self::Auto,
            Some(Value::String(word)) => match word.as_str() {
                "none" => Self::None,
                "auto" => Self::Auto,
                "required" => Self::Required,
                word => bail!(InvalidRequest, "tool_choice is {word:?}, wanted {WANTED_CHOICE}"),
            },
            Some(Value::Object(fields)) => Self::Function(named(fields)?),
            Some(other) => bail!(InvalidRequest, "tool_choice is {other}, wanted {WANTED_CHOICE}"),
        };
        match &choice {
            Self::Required if tools.is_empty() => {
                bail!(InvalidRequest, "tool_choice is \"required\", and the request has no tools")
            }
            Self::Function(name) if tools.get(name).is_none() => {
                let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                bail!(InvalidRequest, "tool_choice names the function {name:?}, and the request's tools are {names:?}")
            }
            _ => Ok(choice),
        }
    }
}

const WANTED_CHOICE: &str = "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": …}}";

fn named(fields: &Map<String, Value>) -> Result<String> {
    let name = fields.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
    let unknown = fields.keys().find(|key| !matches!(key.as_str(), "type" | "function"));
    match (fields.get("type").and_then(Value::as_str), name, unknown) {
        (Some("function"), Some(name), None) => Ok(name.to_owned()),
        _ => bail!(InvalidRequest, "tool_choice is {}, wanted {WANTED_CHOICE}", Value::Object(fields.clone())),
    }
}

fn tool(at: &str, value: &Value) -> Result<Tool> {
    let Some(fields) = value.as_object() else {
        bail!(InvalidRequest, "{at} is {value}, wanted {{\"type\": \"function\", \"function\": {{\"name\": …}}}}");
    };
    if let Some(unknown) = fields.keys().find(|key| !matches!(key.as_str(), "type" | "function")) {
        bail!(InvalidRequest, "{at} has the field {unknown:?}, wanted \"type\" and \"function\"");
    }
    match fields.get("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        other => {
            bail!(InvalidRequest, "{at}.type is {}, wanted \"function\"", other.unwrap_or(&Value::Null))
        }
    }
    let Some(function) = fields.get("function").and_then(Value::as_object) else {
        bail!(
            InvalidRequest,
            "{at}.function is {}, wanted an object with the name of the function",
            fields.get("function").unwrap_or(&Value::Null)
        );
    };
    let name = match function.get("name") {
        Some(Value::String(name)) if is_name(name) => name.clone(),
        other => bail!(
            InvalidRequest,
            "{at}.function.name is {}, wanted 1 to {MAX_NAME} letters, digits, underscores, hyphens or points",
            other.unwrap_or(&Value::Null)
        ),
    };
    let description = match function.get("description") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => bail!(InvalidRequest, "{at}.function.description is {other}, wanted a string"),
    };
    if let Some(strict) = function.get("strict").filter(|strict| !strict.is_boolean() && !strict.is_null()) {
        bail!(InvalidRequest, "{at}.function.strict is {strict}, wanted true or false");
    }
    let parameters = match function.get("parameters") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(schema)) => schema.clone(),
        Some(other) => bail!(InvalidRequest, "{at}.function.parameters is {other}, wanted a JSON schema of an object"),
    };
    check_schema(&format!("{at}.function.parameters"), &parameters)?;
    Ok(Tool { name, description, parameters })
}

/// Checks what parsers and templates rely on. The grammar checks the rest of the schema.
fn check_schema(at: &str, schema: &Map<String, Value>) -> Result<()> {
    match schema.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => bail!(InvalidRequest, "{at}.type is {other}, wanted \"object\""),
    }
    match schema.get("properties") {
        None => {}
        Some(Value::Object(properties)) => {
            if let Some((name, other)) = properties.iter().find(|(_, value)| !value.is_object() && !value.is_boolean())
            {
                bail!(InvalidRequest, "{at}.properties.{name} is {other}, wanted a JSON schema");
            }
        }
        Some(other) => bail!(InvalidRequest, "{at}.properties is {other}, wanted an object of JSON schemas"),
    }
    match schema.get("required") {
        None => Ok(()),
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => Ok(()),
        Some(other) => bail!(InvalidRequest, "{at}.required is {other}, wanted an array of names"),
    }
}

/// OpenAI's names, and also dots, which MCP servers use in names.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_name_character)
}

pub(super) fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// The longest name or id in bytes. After that, the search for its end stops.
pub(super) const MAX_HEAD: usize = 256;
