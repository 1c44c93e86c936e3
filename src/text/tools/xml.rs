//! Calls whose arguments stand in tags: Qwen3-Coder and Qwen 3.5 (`<function=name><parameter=key>value</parameter></function>`), Seed
//! OSS and MiniMax M2, which name the tags otherwise, GLM 4.5 (`name<arg_key>key</arg_key><arg_value>value</arg_value>`), and DeepSeek
//! from V3.2 on (`<｜DSML｜invoke name="name"><｜DSML｜parameter name="key" string="true">value</｜DSML｜parameter></｜DSML｜invoke>`).
//!
//! Values are text without quotes. What type they are says the function's schema, in DeepSeek's form the tag; a text is handed out as
//! it comes.
//!
//! Sources: the chat templates of the models named; for DeepSeek https://huggingface.co/deepseek-ai/DeepSeek-V3.2/tree/main/encoding
//! and https://huggingface.co/deepseek-ai/DeepSeek-V4-Pro/blob/main/encoding/README.md.

use serde_json::Value;

use super::call_json::{ArgumentsReader, CallsReader, Trust};
use super::definition::{MAX_HEAD, Tool};
use super::markers::{Beginning, Found, beginning, find, space};
use super::output::{Broken, End, Output, Syntax};
use super::schema::{Kind, of_argument, types_of};
use super::typed::{close_of, typed};

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
    /// Behind a key, where the tag says whether the value is a text; `true` or `false` follows.
    pub is_text: Option<&'static str>,
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
    is_text: None,
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
    is_text: None,
    value: "<arg_value>",
    value_close: "</arg_value>",
    lines: false,
};
pub(super) const DEEPSEEK_V32: Tags = Tags {
    open: "<｜DSML｜function_calls>",
    close: "</｜DSML｜function_calls>",
    function: "<｜DSML｜invoke name=\"",
    name_end: "\">",
    function_close: "</｜DSML｜invoke>",
    key: "<｜DSML｜parameter name=\"",
    key_end: "\">",
    is_text: Some("\" string=\""),
    value: "",
    value_close: "</｜DSML｜parameter>",
    lines: false,
};
pub(super) const DEEPSEEK_V4: Tags =
    Tags { open: "<｜DSML｜tool_calls>", close: "</｜DSML｜tool_calls>", ..DEEPSEEK_V32 };

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
    /// Whether the value under way is a text, where its tag says so.
    is_text: Option<bool>,
    /// The brace around the arguments is to be closed.
    is_open: bool,
}

impl Xml {
    pub fn new(tags: Tags) -> Self {
        Self { tags, state: State::Text, tool: None, keys: Vec::new(), is_text: None, is_open: false }
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
                let (key, is_text) = match self.tags.is_text.and_then(|mark| text[..start].split_once(mark)) {
                    Some((key, "true")) => (key, Some(true)),
                    Some((key, "false")) => (key, Some(false)),
                    Some(_) => return Err(Broken::at(0, "an argument is a text or not: true or false is wanted")),
                    None => (&text[..start], None),
                };
                self.is_text = is_text;
                let key = key.trim().to_owned();
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
        let is_text = self.is_text.unwrap_or_else(|| self.types(&key).is_some_and(|types| types == ["string"]));
        self.state = if is_text {
            out.arguments("\"");
            State::TextValue
        } else {
            State::Value(key)
        };
        if line > 0 { Ok(line) } else { self.step(text, ended, out) }
    }

    fn types(&self, key: &str) -> Option<Vec<Kind>> {
        let parameters = &self.tool.as_ref()?.parameters;
        types_of(of_argument(parameters, key)?, parameters)
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
        let types = self.types(key);
        // What a tag calls no text is JSON.
        let json = if self.is_text == Some(false) { None } else { types.as_deref() };
        let Some(start) = close_of(text, close, json) else { return Ok(0) };
        let value = &text[..start];
        let value = if self.tags.lines { value.strip_suffix('\n').unwrap_or(value) } else { value };
        out.arguments(&typed(value, types.as_deref()).to_string());
        self.state = State::Body;
        Ok(start + close.len())
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
                let (used, done) = reader.take(text, out)?;
                if done {
                    self.state = State::Body;
                    self.is_open = false;
                }
                Ok(used)
            }
            State::Hermes(reader) => {
                let (used, done) = reader.take(text, out)?;
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
