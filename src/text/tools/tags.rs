//! Calls whose arguments are in tags. The tags are data (`formats`): those of Qwen3-Coder, Seed OSS, MiniMax, GLM, and DeepSeek from
//! V3.2 on.
//!
//! Values are text without quotes. The function's schema tells their type, or in DeepSeek's form the tag does. Text is returned as it
//! comes.

use std::collections::HashSet;

use serde_json::Value;

use super::call_json::{ArgumentsReader, CallsReader, Trust};
use super::definition::{MAX_HEAD, Tool};
use super::markers::{Beginning, Found, Near, beginning, find, find_near, space};
use super::output::{Broken, End, Output, Syntax, function_name};
use super::schema::{Kind, of_argument, types_of};
use super::typed::{ValueEnd, typed};

/// The tags of a family.
pub(super) struct Tags {
    /// The tags around calls.
    pub open: &'static str,
    pub close: &'static str,
    /// Around the name of a function; empty if the name follows `open`.
    pub function: &'static str,
    pub name_end: &'static str,
    pub function_close: &'static str,
    pub key: &'static str,
    pub key_end: &'static str,
    /// In tags that say whether the value is a text: comes after the key, and before `true` or `false`.
    pub is_text: Option<&'static str>,
    /// Before a value; empty if the value follows its key.
    pub value: &'static str,
    pub value_close: &'static str,
    /// What may end a value: `value_close`, alone or after a line break that is not part of the value.
    pub value_ends: &'static [&'static str],
    /// A value is on its own lines: the line breaks around it are not part of it.
    pub lines: bool,
}

enum State {
    Text,
    /// After `open`: a function is expected.
    Function,
    Name,
    /// A key, or the end of the function, is expected.
    Body,
    Key,
    /// Before a value.
    ValueTag(String),
    /// Drops the line break before a value.
    ValueStart(String),
    /// A text, returned as it comes.
    TextValue,
    /// Any other value, read as a whole.
    Value(OtherValue),
    /// All arguments as JSON.
    Json(ArgumentsReader),
    Hermes(CallsReader),
    Closing,
}

/// The current value, if it is read as a whole.
struct OtherValue {
    types: Option<Vec<Kind>>,
    end: ValueEnd,
}

pub(super) struct TagReader {
    tags: &'static Tags,
    state: State,
    tool: Option<Tool>,
    /// Arguments of the call so far.
    keys: HashSet<String>,
    /// Whether the current value is a text, if its tag says so.
    is_text: Option<bool>,
    /// Whether the brace around the arguments must be closed.
    is_open: bool,
}

impl TagReader {
    pub fn new(tags: &'static Tags) -> Self {
        Self { tags, state: State::Text, tool: None, keys: HashSet::new(), is_text: None, is_open: false }
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
        // Some models use Hermes' form instead.
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
            Beginning::Other => Err(Broken::at(0, format!("expected {}…{}", self.tags.function, self.tags.name_end))),
        }
    }

    fn name(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let tags = self.tags;
        let in_tag = !tags.name_end.is_empty();
        let ends: &[&str] = if in_tag { &[tags.name_end] } else { &[tags.key, tags.function_close] };
        match find_near(text, ends, MAX_HEAD) {
            Near::Marker { start, .. } => {
                let name = function_name(text[..start].trim())?;
                self.tool = out.tools.get(name).cloned();
                self.keys.clear();
                out.begin(name.to_owned(), None);
                out.arguments("{");
                self.is_open = true;
                self.state = State::Body;
                // If the end of the name belongs to the next element, it is read again.
                Ok(start + if in_tag { tags.name_end.len() } else { 0 })
            }
            Near::Undecided => Ok(0),
            Near::TooFar => Err(Broken::at(0, "the name of a function does not end")),
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
                // The brace was already returned.
                let mut reader = ArgumentsReader::new();
                reader.open();
                self.state = State::Json(reader);
                Ok(1)
            }
            _ => Err(Broken::at(0, format!("expected {} or {}", tags.key, tags.function_close))),
        }
    }

    fn key(&mut self, text: &str) -> Result<usize, Broken> {
        let end = self.tags.key_end;
        match find_near(text, &[end], MAX_HEAD) {
            Near::Marker { start, .. } if start > 0 => {
                let (key, is_text) = match self.tags.is_text.and_then(|mark| text[..start].split_once(mark)) {
                    Some((key, "true")) => (key, Some(true)),
                    Some((key, "false")) => (key, Some(false)),
                    Some(_) => return Err(Broken::at(0, "expected true or false for whether an argument is a text")),
                    None => (&text[..start], None),
                };
                self.is_text = is_text;
                let key = key.trim().to_owned();
                if !self.keys.insert(key.clone()) {
                    return Err(Broken::at(0, format!("the argument {key:?} is given twice")));
                }
                self.state = if self.tags.value.is_empty() { State::ValueStart(key) } else { State::ValueTag(key) };
                Ok(start + end.len())
            }
            Near::Undecided => Ok(0),
            _ => Err(Broken::at(0, "expected the name of an argument")),
        }
    }

    /// The beginning of a value whose type is known.
    fn value_start(&mut self, key: String, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let tags = self.tags;
        let line = match beginning(text, &["\n", "\r\n"], false) {
            Beginning::Undecided => return Ok(0),
            Beginning::Marker(marker) if tags.lines => marker + 1,
            _ => 0,
        };
        let comma = if self.keys.len() > 1 { ", " } else { "" };
        out.arguments(&format!("{comma}{}: ", Value::from(key.as_str())));
        let types = self.types(&key);
        let is_text = self.is_text.unwrap_or_else(|| types.as_deref() == Some(&["string"]));
        self.state = if is_text {
            out.arguments("\"");
            State::TextValue
        } else {
            State::Value(OtherValue { types, end: ValueEnd::default() })
        };
        if line > 0 { Ok(line) } else { self.step(text, ended, out) }
    }

    fn types(&self, key: &str) -> Option<Vec<Kind>> {
        let parameters = &self.tool.as_ref()?.parameters;
        types_of(of_argument(parameters, key)?, parameters)
    }

    fn text_value(&mut self, text: &str, out: &mut Output) -> usize {
        let ends = self.tags.value_ends;
        match find(text, ends, false) {
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

    fn value(&mut self, text: &str, out: &mut Output) -> usize {
        let State::Value(OtherValue { types, end }) = &mut self.state else { return 0 };
        let close = self.tags.value_close;
        // If the tag says that a value is not a text, it is JSON.
        let json = if self.is_text == Some(false) { None } else { types.as_deref() };
        let Some(start) = end.find(text, close, json) else { return 0 };
        let value = &text[..start];
        let value = if self.tags.lines { value.strip_suffix('\n').unwrap_or(value) } else { value };
        out.arguments(&typed(value, types.as_deref()).to_string());
        self.state = State::Body;
        start + close.len()
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

impl Syntax for TagReader {
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
                Beginning::Other => Err(Broken::at(0, format!("expected {}", self.tags.value))),
            },
            State::ValueStart(key) => {
                let key = key.clone();
                self.value_start(key, text, ended, out)
            }
            State::TextValue => Ok(self.text_value(text, out)),
            State::Value(_) => Ok(self.value(text, out)),
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
