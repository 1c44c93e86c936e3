//! What the steps of a tokenizer.json have in common: how their sections are read and what they search for.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::NormalizedString;

use super::pattern::Pattern;
use crate::error::{Error, Result};

#[derive(Deserialize)]
enum PatternSection {
    String(String),
    Regex(String),
}

/// What to search a text for: a string or an expression.
pub(super) fn compile(pattern: &Value) -> Result<Pattern> {
    match section("a pattern", pattern.clone())? {
        PatternSection::String(text) => Ok(Pattern::Text(text)),
        PatternSection::Regex(expression) => Pattern::new(&expression),
    }
}

/// Reads a section of the file as the crate's own type.
pub(super) fn section<T: DeserializeOwned>(what: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|cause| err!(UnsupportedTokenizer, "{what} of the tokenizer: {cause}"))
}

/// The type of a section.
pub(super) fn kind<'v>(what: &str, value: &'v Value) -> Result<&'v str> {
    match value.get("type").and_then(Value::as_str) {
        Some(kind) => Ok(kind),
        None => bail!(UnsupportedTokenizer, "a {what} of the tokenizer has no type, wanted an object with one"),
    }
}

/// The parts of a section of type Sequence.
pub(super) fn parts<'v>(what: &str, value: &'v Value, field: &str) -> Result<&'v [Value]> {
    match value.get(field).and_then(Value::as_array) {
        Some(parts) => Ok(parts),
        None => bail!(UnsupportedTokenizer, "a sequence of {what}s of the tokenizer has no list {field:?}"),
    }
}

/// Replaces the matches of an expression by a fixed text.
pub(super) struct Replacement {
    pattern: Pattern,
    content: String,
}

impl Replacement {
    /// Removes what an expression matches.
    pub(super) fn removing(expression: &str) -> Result<Self> {
        Ok(Self { pattern: Pattern::new(expression)?, content: String::new() })
    }

    pub(super) fn new(value: &Value) -> Result<Self> {
        let content = value.get("content").and_then(Value::as_str);
        match (value.get("pattern"), content) {
            (Some(pattern), Some(content)) => Ok(Self { pattern: compile(pattern)?, content: content.to_owned() }),
            _ => bail!(UnsupportedTokenizer, "a Replace of the tokenizer wants a pattern and a content"),
        }
    }

    /// Replaces all matches in a text that knows where its characters came from.
    pub(super) fn apply(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        text.replace(&self.pattern, &self.content)
    }

    /// `text` with all matches replaced.
    pub(super) fn replace(&self, text: &str) -> Result<String> {
        let mut replaced = String::with_capacity(text.len());
        let mut done = 0;
        for found in self.pattern.find_all(text)? {
            replaced.push_str(&text[done..found.start]);
            replaced.push_str(&self.content);
            done = found.end;
        }
        replaced.push_str(&text[done..]);
        Ok(replaced)
    }
}

/// The error of a step, which the crate passed on.
pub(super) fn of_step(cause: tokenizers::Error) -> Error {
    match cause.downcast::<Error>() {
        Ok(error) => *error,
        Err(cause) => err!(InvalidRequest, "a step of the tokenizer failed on the text: {cause}"),
    }
}
