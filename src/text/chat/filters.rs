//! Filters, tests and functions of Jinja that minijinja lacks or implements differently.
//!
//! Source: the documentation of Jinja 3.1 ("List of Builtin Filters", "List of Builtin Tests").

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use super::guarded::add_filter;
use super::json::tojson;
use super::python::{Side, capitalize, pad, replace_text, split_lines, to_python_string};

pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_test("sequence", is_sequence);
    environment
        .add_test("iterable", |value: &Value| value.is_undefined() || (!value.is_none() && value.try_iter().is_ok()));
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);

    // It hands out one of its arguments as it is, which may be a macro or a loop.
    environment.add_filter("default", default);
    environment.add_filter("d", default);

    let escape = Value::from_function(escape_html);
    for (name, filter) in [
        ("tojson", Value::from_function(tojson)),
        ("string", Value::from_function(to_python_string)),
        ("capitalize", Value::from_function(|text: &Value| capitalize(&to_python_string(text)))),
        ("center", Value::from_function(center)),
        ("wordcount", Value::from_function(wordcount)),
        ("e", escape.clone()),
        ("escape", escape.clone()),
        ("forceescape", escape),
        ("replace", Value::from_function(replace)),
        ("indent", Value::from_function(indent)),
        ("truncate", Value::from_function(truncate)),
        ("length", Value::from_function(length)),
        ("count", Value::from_function(length)),
        ("items", Value::from_function(items)),
        ("dictsort", Value::from_function(dictsort)),
        ("last", Value::from_function(last)),
        ("int", Value::from_function(int)),
        ("float", Value::from_function(float)),
    ] {
        add_filter(environment, name, filter);
    }
}

/// A filter's arguments, by position or by name, in Jinja's documented order.
struct Arguments {
    by_place: std::vec::IntoIter<Value>,
    by_name: Kwargs,
}

impl Arguments {
    fn new(by_place: Rest<Value>, by_name: Kwargs) -> Self {
        Self { by_place: by_place.0.into_iter(), by_name }
    }

    fn next(&mut self, name: &str) -> Result<Option<Value>, Error> {
        match self.by_place.next() {
            Some(value) => Ok(Some(value)),
            None => self.by_name.get::<Option<Value>>(name),
        }
    }

    fn next_flag(&mut self, name: &str) -> Result<bool, Error> {
        Ok(self.next(name)?.is_some_and(|value| value.is_true()))
    }

    fn next_size(&mut self, name: &str) -> Result<Option<usize>, Error> {
        match self.next(name)?.filter(|value| !value.is_none()) {
            Some(value) => usize::try_from(value).map(Some),
            None => Ok(None),
        }
    }

    fn finish(mut self) -> Result<(), Error> {
        if self.by_place.next().is_some() {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        self.by_name.assert_all_used()
    }
}

/// In Jinja, strings and dicts are sequences too: they have a length and access by index.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Bytes)
}

/// Like markupsafe.
fn escape_html(text: &Value) -> String {
    let text = to_python_string(text);
    text.replace('&', "&amp;").replace('>', "&gt;").replace('<', "&lt;").replace('\'', "&#39;").replace('"', "&#34;")
}

fn center(text: &Value, width: Option<usize>) -> String {
    pad(&to_python_string(text), width.unwrap_or(80), ' ', Side::Both)
}

fn wordcount(text: &Value) -> usize {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    to_python_string(text).split(|character| !is_word(character)).filter(|word| !word.is_empty()).count()
}

fn replace(state: &mut State, text: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<String, Error> {
    replace_text(state, &to_python_string(text), &to_python_string(old), &to_python_string(new), count)
}

/// `indent(width=4, first=False, blank=False)`; the width may be the text to indent with.
fn indent(text: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<String, Error> {
    let mut arguments = Arguments::new(by_place, by_name);
    let width = match arguments.next("width")? {
        None => "    ".to_owned(),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(i64::try_from(width)?).unwrap_or(0)),
        },
    };
    let first = arguments.next_flag("first")?;
    let blank = arguments.next_flag("blank")?;
    arguments.finish()?;
    // Jinja adds this newline so that splitting keeps one at the end of the text.
    let text = to_python_string(text) + "\n";
    let mut indented = String::with_capacity(text.len() + 16);
    for (index, line) in split_lines(&text, false).into_iter().enumerate() {
        if index > 0 {
            indented.push('\n');
        }
        let wanted = if index == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            indented.push_str(&width);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`.
fn truncate(text: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<String, Error> {
    let mut arguments = Arguments::new(by_place, by_name);
    let length = arguments.next_size("length")?.unwrap_or(255);
    let kill_words = arguments.next_flag("killwords")?;
    let end = arguments.next("end")?.map_or_else(|| "...".to_owned(), |end| end.to_string());
    let leeway = arguments.next_size("leeway")?.unwrap_or(5);
    arguments.finish()?;
    let text = to_python_string(text);
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let Some(kept) = length.checked_sub(end.chars().count()) else {
        let message = format!("truncate: length {length} is shorter than the end {end:?}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    };
    let kept: String = text.chars().take(kept).collect();
    let kept = if kill_words { kept.as_str() } else { kept.rsplit_once(' ').map_or(kept.as_str(), |(words, _)| words) };
    Ok(kept.to_owned() + &end)
}

/// `default(default_value='', boolean=False)`.
fn default(value: Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<Value, Error> {
    let mut arguments = Arguments::new(by_place, by_name);
    let other = arguments.next("default_value")?.unwrap_or_else(|| Value::from(""));
    let also_false = arguments.next_flag("boolean")?;
    arguments.finish()?;
    Ok(if value.is_undefined() || (also_false && !value.is_true()) { other } else { value })
}

/// An undefined value has length 0.
fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() { Ok(0) } else { filters::length(value) }
}

/// An undefined value has no items.
fn items(value: &Value) -> Result<Value, Error> {
    if value.is_undefined() { Ok(Value::from(Vec::<Value>::new())) } else { filters::items(value) }
}

/// `dictsort(case_sensitive=False, by='key', reverse=False)`.
fn dictsort(value: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<Value, Error> {
    let mut arguments = Arguments::new(by_place, by_name);
    let case_sensitive = arguments.next_flag("case_sensitive")?;
    let by = arguments.next("by")?.unwrap_or_else(|| Value::from("key"));
    let reverse = arguments.next_flag("reverse")?;
    arguments.finish()?;
    let options = [("case_sensitive", Value::from(case_sensitive)), ("by", by), ("reverse", Value::from(reverse))];
    filters::dictsort(value, options.into_iter().collect())
}

/// The last key of a dict.
fn last(value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::Map { Ok(value.try_iter()?.last().unwrap_or_default()) } else { filters::last(value) }
}

/// `int(default=0, base=10)`; the default replaces what is not a number.
fn int(value: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<Value, Error> {
    let mut arguments = Arguments::new(by_place, by_name);
    let default = arguments.next("default")?.unwrap_or_else(|| Value::from(0));
    let base = arguments.next("base")?.map_or(Ok(10), u32::try_from)?;
    arguments.finish()?;
    let number = match value.as_str() {
        Some(text) => parse_int(text, base).map(Value::from).or_else(|| parse_float(text).and_then(truncated)),
        None if value.is_integer() => Some(value.clone()),
        None if value.kind() == ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok().and_then(truncated),
    };
    Ok(number.unwrap_or(default))
}

fn truncated(number: f64) -> Option<Value> {
    // An i128 holds these integers exactly; templates don't use larger ones.
    (number.is_finite() && number.abs() < 1e38).then(|| Value::from(number.trunc() as i128))
}

/// Python's `int(text, base)`: whitespace around it, a sign, a prefix that fits the base, underscores between digits.
fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_lowercase();
    let (base, digits) = match (base, lower.get(..2)) {
        (0 | 16, Some("0x")) => (16, &digits[2..]),
        (0 | 8, Some("0o")) => (8, &digits[2..]),
        (0 | 2, Some("0b")) => (2, &digits[2..]),
        (0, _) => (10, digits),
        (base, _) => (base, digits),
    };
    if !(2..=36).contains(&base)
        || digits.starts_with(['_', '-', '+'])
        || digits.ends_with('_')
        || digits.contains("__")
    {
        return None;
    }
    let number = i128::from_str_radix(&digits.replace('_', ""), base).ok()?;
    Some(if negative { -number } else { number })
}

/// `float(default=0.0)`; the default replaces what is not a number.
fn float(value: &Value, by_place: Rest<Value>, by_name: Kwargs) -> Result<Value, Error> {
    let mut arguments = Arguments::new(by_place, by_name);
    let default = arguments.next("default")?.unwrap_or_else(|| Value::from(0.0));
    arguments.finish()?;
    let number = match value.as_str() {
        Some(text) => parse_float(text),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(number.map_or(default, Value::from))
}

fn parse_float(text: &str) -> Option<f64> {
    text.trim().replace('_', "").parse().ok()
}
