//! Calls whose arguments stand in tags: Qwen3-Coder and Qwen 3.5 (`<function=name><parameter=key>value</parameter></function>`), Seed
//! OSS and MiniMax M2, which name the tags otherwise, and GLM 4.5 (`name<arg_key>key</arg_key><arg_value>value</arg_value>`).
//!
//! Values are text without quotes. What type they are says the function's schema; a text is handed out as it comes.
//!
//! Source: the chat templates of the models named.

use serde_json::Value;

use super::call_json::{ArgumentsReader, CallsReader, Trust};
use super::call_python::literal;
use super::definition::{MAX_HEAD, Tool};
use super::markers::{Beginning, Found, beginning, find, space};
use super::output::{Broken, End, Output, Syntax};

/// How a family names its tags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    /// Around calls.
    open: &'static str,
    close: &'static str,
    /// Around the name of a function; empty where it stands behind `open`.
    pub function: &'static str,
    pub name_end: &'static str,
    pub function_close: &'static str,
    pub key: &'static str,
    pub key_end: &'static str,
    /// Before a value; empty where it stands behind its key.
    pub value: &'static str,
    pub value_close: &'static str,
    /// Values have a line break before and behind them that is none of theirs.
    pub lines: bool,
}

pub(super) const QWEN3_CODER: Tags = Tags {
    open: "<tool_call>",
    close: "</tool_call>",
    function: "<function=",
    name_end: ">",
    function_close: "</function>",
    key: "<parameter=",
    key_end: ">",
    value: "",
    value_close: "</parameter>",
    lines: true,
};
pub(super) const SEED: Tags = Tags { open: "<seed:tool_call>", close: "</seed:tool_call>", ..QWEN3_CODER };
pub(super) const MINIMAX: Tags = Tags {
    open: "<minimax:tool_call>",
    close: "</minimax:tool_call>",
    function: "<invoke name=\"",
    name_end: "\">",
    function_close: "</invoke>",
    key: "<parameter name=\"",
    key_end: "\">",
    ..QWEN3_CODER
};
pub(super) const GLM: Tags = Tags {
    open: "<tool_call>",
    close: "</tool_call>",
    function: "",
    name_end: "",
    function_close: "</tool_call>",
    key: "<arg_key>",
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_close: "</arg_value>",
    lines: false,
};

enum State {
    Text,
    /// Behind `open`: a function is wanted.
    Function,
    Name,
    /// Where a key is wanted, or the end of the function.
    Body,
    Key,
    /// Before a value.
    ValueTag(String),
    /// Drops the line break before a value.
    ValueStart(String),
    /// A text, handed out as it comes.
    TextValue,
    /// Any other value, read as a whole.
    Value(String),
    /// All arguments as JSON.
    Json(ArgumentsReader),
    Hermes(CallsReader),
    Closing,
}

pub(super) struct Xml {
    tags: Tags,
    state: State,
    tool: Option<Tool>,
    keys: Vec<String>,
    /// The brace around the arguments is to be closed.
    is_open: bool,
}

impl Xml {
    pub fn new(tags: Tags) -> Self {
        Self { tags, state: State::Text, tool: None, keys: Vec::new(), is_open: false }
    }

    fn opens(&self) -> Vec<&'static str> {
        [self.tags.open, self.tags.function].into_iter().filter(|open| !open.is_empty()).collect()
    }

    fn text(&mut self, text: &str, ended: bool, out: &mut Output) -> usize {
        let opens = self.opens();
        match find(text, &opens, ended) {
            Found::Marker { start: 0, marker } => {
                out.open();
                self.state = if marker == 0 { State::Function } else { State::Name };
                opens[marker].len()
            }
            Found::Marker { start, .. } | Found::NoneBefore(start) => {
                out.text(&text[..start]);
                start
            }
        }
    }

    fn function(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        // Some models fall back to Hermes' form.
        if text.starts_with('{') {
            self.state = State::Hermes(CallsReader::new(Trust::Marked));
            return self.step(text, ended, out);
        }
        if self.tags.function.is_empty() {
            self.state = State::Name;
            return self.step(text, ended, out);
        }
        match beginning(text, &[self.tags.function], false) {
            Beginning::Undecided => Ok(0),
            Beginning::Marker(_) => {
                self.state = State::Name;
                Ok(self.tags.function.len())
            }
            Beginning::Other => Err(Broken::at(0, format!("{}…{} is wanted", self.tags.function, self.tags.name_end))),
        }
    }

    fn name(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let tags = self.tags;
        let in_tag = !tags.name_end.is_empty();
        let ends: &[&str] = if in_tag { &[tags.name_end] } else { &[tags.key, tags.function_close] };
        match find(text, ends, false) {
            Found::Marker { start, .. } if start <= MAX_HEAD => {
                let name = text[..start].trim();
                if name.is_empty() || name.contains(['<', '\n', '{']) {
                    return Err(Broken::at(0, "the name of a function is wanted"));
                }
                self.tool = out.tools.get(name).cloned();
                self.keys.clear();
                out.begin(name.to_owned(), None);
                out.arguments("{");
                self.is_open = true;
                self.state = State::Body;
                // What ends a name is looked at again where it is more than that.
                Ok(start + if in_tag { tags.name_end.len() } else { 0 })
            }
            Found::NoneBefore(certain) if certain <= MAX_HEAD => Ok(0),
            _ => Err(Broken::at(0, "the name of a function does not end")),
        }
    }

    fn body(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let tags = self.tags;
        let is_first = self.keys.is_empty();
        match beginning(text, &[tags.key, tags.function_close, tags.close], false) {
            Beginning::Undecided => Ok(0),
            Beginning::Marker(0) if self.is_open => {
                self.state = State::Key;
                Ok(tags.key.len())
            }
            Beginning::Marker(marker) if marker > 0 => {
                if self.is_open {
                    out.arguments("}");
                }
                out.end();
                let is_close = tags.function_close == tags.close || marker == 2;
                if is_close {
                    out.close();
                }
                self.state = if is_close { State::Text } else { State::Closing };
                Ok(if marker == 2 { tags.close.len() } else { tags.function_close.len() })
            }
            Beginning::Other if is_first && self.is_open && tags.lines && text.starts_with('{') => {
                // The brace has been handed out.
                let mut reader = ArgumentsReader::new();
                reader.open();
                self.state = State::Json(reader);
                Ok(1)
            }
            _ => Err(Broken::at(0, format!("{} or {} is wanted", tags.key, tags.function_close))),
        }
    }

    fn key(&mut self, text: &str) -> Result<usize, Broken> {
        let end = self.tags.key_end;
        match find(text, &[end], false) {
            Found::Marker { start, .. } if (1..=MAX_HEAD).contains(&start) => {
                let key = text[..start].trim().to_owned();
                if self.keys.contains(&key) {
                    return Err(Broken::at(0, format!("the argument {key:?} is there twice")));
                }
                self.keys.push(key.clone());
                self.state = if self.tags.value.is_empty() { State::ValueStart(key) } else { State::ValueTag(key) };
                Ok(start + end.len())
            }
            Found::NoneBefore(certain) if certain <= MAX_HEAD => Ok(0),
            _ => Err(Broken::at(0, "the name of an argument is wanted")),
        }
    }

    /// The beginning of a value, where its type is known.
    fn value_start(&mut self, key: String, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let tags = self.tags;
        let line = match beginning(text, &["\n", "\r\n"], false) {
            Beginning::Undecided => return Ok(0),
            Beginning::Marker(marker) if tags.lines => marker + 1,
            _ => 0,
        };
        let comma = if self.keys.len() > 1 { ", " } else { "" };
        out.arguments(&format!("{comma}{}: ", Value::from(key.as_str())));
        let types = self.tool.as_ref().and_then(|tool| types_of(tool.parameters.get("properties")?.get(&key)?));
        self.state = match types {
            Some(types) if types == ["string"] => {
                out.arguments("\"");
                State::TextValue
            }
            _ => State::Value(key),
        };
        if line > 0 { Ok(line) } else { self.step(text, ended, out) }
    }

    fn text_value(&mut self, text: &str, out: &mut Output) -> usize {
        let (ends, all) = self.value_ends();
        match find(text, &ends[..all], false) {
            Found::Marker { start: 0, marker } => {
                out.arguments("\"");
                self.state = State::Body;
                ends[marker].len()
            }
            Found::Marker { start, .. } | Found::NoneBefore(start) => {
                let quoted = Value::from(&text[..start]).to_string();
                out.arguments(&quoted[1..quoted.len() - 1]);
                start
            }
        }
    }

    /// The end of a value, with and without the line break before it; how many of these count.
    fn value_ends(&self) -> ([&'static str; 3], usize) {
        match (self.tags.value_close, self.tags.lines) {
            ("</parameter>", true) => (["</parameter>", "\n</parameter>", "\r\n</parameter>"], 3),
            (close, _) => ([close, "", ""], 1),
        }
    }

    fn value(&mut self, key: &str, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let close = self.tags.value_close;
        match find(text, &[close], false) {
            Found::Marker { start, .. } => {
                let types = self.tool.as_ref().and_then(|tool| types_of(tool.parameters.get("properties")?.get(key)?));
                let text = &text[..start];
                let text = if self.tags.lines { text.strip_suffix('\n').unwrap_or(text) } else { text };
                out.arguments(&typed(text, types.as_deref()).to_string());
                self.state = State::Body;
                Ok(start + close.len())
            }
            Found::NoneBefore(_) => Ok(0),
        }
    }

    fn closing(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let mut markers = vec![self.tags.close];
        markers.extend(self.opens());
        match beginning(text, &markers, ended) {
            Beginning::Undecided => return Ok(0),
            Beginning::Marker(0) => {
                out.close();
                self.state = State::Text;
                return Ok(self.tags.close.len());
            }
            Beginning::Other if ended && self.tags.close.starts_with(text) => return Ok(text.len()),
            _ => {}
        }
        out.close();
        self.state = State::Text;
        Ok(self.text(text, ended, out))
    }
}

impl Syntax for Xml {
    fn step(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let skips = matches!(self.state, State::Function | State::Body | State::ValueTag(_) | State::Closing);
        let space = if skips { space(text) } else { 0 };
        if space > 0 {
            return Ok(space);
        }
        match &mut self.state {
            State::Text => Ok(self.text(text, ended, out)),
            State::Function => self.function(text, ended, out),
            State::Name => self.name(text, out),
            State::Body => self.body(text, out),
            State::Key => self.key(text),
            State::ValueTag(key) => match beginning(text, &[self.tags.value], false) {
                Beginning::Undecided => Ok(0),
                Beginning::Marker(_) => {
                    self.state = State::ValueStart(std::mem::take(key));
                    Ok(self.tags.value.len())
                }
                Beginning::Other => Err(Broken::at(0, format!("{} is wanted", self.tags.value))),
            },
            State::ValueStart(key) => {
                let key = key.clone();
                self.value_start(key, text, ended, out)
            }
            State::TextValue => Ok(self.text_value(text, out)),
            State::Value(key) => {
                let key = key.clone();
                self.value(&key, text, out)
            }
            State::Json(reader) => {
                let (used, done) = reader.take(text, out).map_err(|(used, reason)| Broken::at(used, reason))?;
                if done {
                    self.state = State::Body;
                    self.is_open = false;
                }
                Ok(used)
            }
            State::Hermes(reader) => {
                let (used, done) = reader.take(text, out).map_err(|(used, reason)| Broken::at(used, reason))?;
                if done {
                    self.state = State::Closing;
                }
                Ok(used)
            }
            State::Closing => self.closing(text, ended, out),
        }
    }

    fn finish(&mut self, _end: End, out: &mut Output) {
        if matches!(self.state, State::Closing) {
            out.close();
        }
    }

    fn reset(&mut self) {
        self.state = State::Text;
    }
}

/// The types that a schema allows, if it says so in a simple way.
pub(super) fn types_of(schema: &Value) -> Option<Vec<String>> {
    let of_value = |value: &Value| {
        Some(match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        })
    };
    let mut types: Vec<String> = match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(Value::String(name)), ..) => vec![name.clone()],
        (Some(Value::Array(names)), ..) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        (_, Some(Value::Array(values)), _) => values.iter().filter_map(of_value).map(str::to_owned).collect(),
        (.., Some(value)) => of_value(value).map(str::to_owned).into_iter().collect(),
        _ => {
            let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
            choices.iter().map(types_of).collect::<Option<Vec<_>>>()?.concat()
        }
    };
    types.sort();
    types.dedup();
    (!types.is_empty()).then_some(types)
}

/// What a text means, of which the types are known or not.
fn typed(text: &str, types: Option<&[String]>) -> Value {
    let parsed = serde_json::from_str(text.trim()).ok().or_else(|| literal(text));
    let allows = |name: &str| types.is_none_or(|types| types.iter().any(|known| known == name));
    let fits = match &parsed {
        None => false,
        Some(Value::Null) => allows("null"),
        Some(Value::Bool(_)) => allows("boolean"),
        Some(Value::Number(number)) => {
            allows("number") || (number.as_f64().is_some_and(|n| n.fract() == 0.0) && allows("integer"))
        }
        Some(Value::String(_)) => types.is_none(),
        Some(Value::Array(_)) => allows("array"),
        Some(Value::Object(_)) => allows("object"),
    };
    match parsed {
        Some(parsed) if fits || !allows("string") => parsed,
        _ => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_schema_says_what_a_text_means() {
        for (text, schema, wanted) in [
            ("12", json!({"type": "string"}), json!("12")),
            ("12", json!({"type": "integer"}), json!(12)),
            ("12", json!({}), json!(12)),
            ("[1, 2]", json!({"type": "array"}), json!([1, 2])),
            ("True", json!({"type": "boolean"}), json!(true)),
            ("null", json!({"type": ["string", "null"]}), json!(null)),
            ("12", json!({"type": ["string", "null"]}), json!("12")),
            ("twelve", json!({"type": "integer"}), json!("twelve")),
            ("red", json!({"enum": ["red", "green"]}), json!("red")),
            ("{\"a\": 1}", json!({"anyOf": [{"type": "object"}, {"type": "null"}]}), json!({"a": 1})),
            ("two words", json!({}), json!("two words")),
        ] {
            assert_eq!(typed(text, types_of(&schema).as_deref()), wanted, "{text} {schema}");
        }
    }
}
