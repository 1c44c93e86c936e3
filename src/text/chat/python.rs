//! Python's behaviour that minijinja lacks or implements differently: methods of strings, lists and dicts beyond those of
//! `minijinja_contrib::pycompat`, and the format of floats.
//!
//! Source: Python's documentation of `str`. Methods that change a value are left out, because transformers' sandbox refuses them too.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};

use super::budget::{pay, pay_to_write};
use super::guarded;
use super::json::python_float;
use super::rewrite::SLICE_METHOD;
use super::values::{ITEM, list as list_of, measure_to_print, tuple as tuple_of};

pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(call_method);
    environment.set_formatter(write_as_python);
}

fn write_as_python(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let size = match value.as_str() {
        Some(text) => text.len() as u64,
        // What is not a text is written like code, where a byte may take five.
        None => measure_to_print(state, value)?.size.saturating_mul(5),
    };
    // Escaping writes six bytes for one.
    let escaped =
        if matches!(state.auto_escape(), AutoEscape::None) || value.is_safe() { size } else { size.saturating_mul(6) };
    pay_to_write(state, escaped)?;
    if value.kind() == ValueKind::Number && !value.is_integer() {
        return output.write_str(&to_python_string(value)).map_err(|_| Error::from(ErrorKind::WriteFailure));
    }
    minijinja::escape_formatter(output, state, value)
}

/// Python's `str`.
pub(super) fn to_python_string(value: &Value) -> String {
    match (value.kind(), value.is_integer()) {
        (ValueKind::Number, false) => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), |number| python_float(number, "nan", "inf"))
        }
        _ => value.to_string(),
    }
}

fn call_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if method == SLICE_METHOD {
        return slice(state, value, args);
    }
    guarded::method(state, method, value, args, |state| call_known_method(state, value, method, args))
}

fn call_known_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let known = match value.kind() {
        ValueKind::String => call_string_method(state, value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq => call_list_method(value, method, args)?,
        ValueKind::Map if method == "copy" => {
            let () = from_args(args)?;
            Some(value.clone())
        }
        _ => None,
    };
    match known {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args).map_err(|cause| {
            if cause.kind() == ErrorKind::UnknownMethod && cause.detail().is_none() {
                let message = format!("a {} has no method {method:?}", value.kind());
                return Error::new(ErrorKind::UnknownMethod, message);
            }
            cause
        }),
    }
}

fn call_string_method(state: &mut State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            Value::from(replace_text(state, text, old, new, count)?)
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "capitalize" => {
            let () = from_args(args)?;
            Value::from(capitalize(text))
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(text.chars().map(swap_case).collect::<String>())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase().replace('ß', "ss"))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "split" | "rsplit" => split(text, method == "rsplit", args)?,
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, after) = text.split_once(non_empty(separator)?).unwrap_or((text, ""));
            let found = if before.len() == text.len() { "" } else { separator };
            tuple([before, found, after])
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(non_empty(separator)?) {
                Some((before, after)) => tuple([before, separator, after]),
                None => tuple(["", "", text]),
            }
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            list(split_lines(text, keep_ends.unwrap_or(false)))
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let found = if method == "index" { text.find(part) } else { text.rfind(part) };
            match found {
                Some(at) => Value::from(text[..at].chars().count()),
                None => return Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
            }
        }
        "startswith" | "endswith" => starts_or_ends(text, method == "startswith", args)?,
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            Value::from(sign.to_owned() + &pad(digits, width.saturating_sub(sign.len()), '0', Side::Left))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let side = match method {
                "ljust" => Side::Right,
                "rjust" => Side::Left,
                _ => Side::Both,
            };
            Value::from(pad(text, width, fill.unwrap_or(' '), side))
        }
        "expandtabs" => {
            let (width,): (Option<usize>,) = from_args(args)?;
            Value::from(expand_tabs(text, width.unwrap_or(8)))
        }
        "istitle" => {
            let () = from_args(args)?;
            Value::from(text.chars().any(char::is_alphabetic) && text == title(text))
        }
        _ => return Ok(None),
    }))
}

fn call_list_method(list: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "copy" => {
            let () = from_args(args)?;
            list.clone()
        }
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            match list.try_iter()?.position(|item| item == *wanted) {
                Some(index) => Value::from(index),
                None => return Err(Error::new(ErrorKind::InvalidOperation, format!("{wanted} is not in list"))),
            }
        }
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => {
            let message = format!("{method}() would change a list, which templates may not: build a new one with +");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        _ => return Ok(None),
    }))
}

/// `value[start:stop:step]` as Python slices.
pub(super) fn slice(state: &mut State, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (start, stop, step): (Option<i64>, Option<i64>, Option<i64>) = from_args(args)?;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "slice step cannot be zero"));
    }
    if let Some(text) = value.as_str() {
        pay(state, (text.len() as u64).saturating_mul(8))?;
        let characters: Vec<char> = text.chars().collect();
        let sliced = places(characters.len(), start, stop, step).filter_map(|at| characters.get(at));
        return Ok(Value::from(sliced.collect::<String>()));
    }
    let items: Vec<Value> = match value.kind() {
        ValueKind::Undefined | ValueKind::None => Vec::new(),
        ValueKind::Seq | ValueKind::Iterable => {
            pay(state, (value.len().unwrap_or(0) as u64).saturating_mul(ITEM))?;
            value.try_iter()?.collect()
        }
        kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("a {kind} cannot be sliced"))),
    };
    let sliced = places(items.len(), start, stop, step).filter_map(|at| items.get(at).cloned()).collect();
    if value.is_tuple() { tuple_of(state, sliced) } else { list_of(state, sliced) }
}

/// The places that a slice of `len` items takes.
fn places(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let len = len as i64;
    // Forwards, the bounds are from 0 to len; backwards, from -1 to len - 1: one place before and after the items.
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |bound: Option<i64>, default: i64| match bound {
        None => default,
        Some(bound) => (if bound < 0 { bound.saturating_add(len) } else { bound }).clamp(lowest, highest),
    };
    let (start, stop) = if step > 0 {
        (bound(start, lowest), bound(stop, highest))
    } else {
        (bound(start, highest), bound(stop, lowest))
    };
    std::iter::successors(Some(start), move |at| at.checked_add(step))
        .take_while(move |at| if step > 0 { *at < stop } else { *at > stop })
        .filter_map(|at| usize::try_from(at).ok())
}

fn list<'t>(texts: impl IntoIterator<Item = &'t str>) -> Value {
    texts.into_iter().map(Value::from).collect()
}

fn tuple(texts: [&str; 3]) -> Value {
    Value::from(Tuple::from(texts.map(Value::from)))
}

fn non_empty(separator: &str) -> Result<&str, Error> {
    match separator {
        "" => Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        separator => Ok(separator),
    }
}

/// `split(sep=None, maxsplit=-1)` and `rsplit`.
fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (arguments, options): (Rest<Value>, Kwargs) = from_args(args)?;
    let mut arguments = arguments.0.into_iter();
    let separator = match arguments.next() {
        Some(separator) => Some(separator),
        None => options.get::<Option<Value>>("sep")?,
    };
    let separator = separator.filter(|separator| !separator.is_none());
    let maxsplit = match arguments.next() {
        Some(maxsplit) => i64::try_from(maxsplit)?,
        None => options.get::<Option<i64>>("maxsplit")?.unwrap_or(-1),
    };
    options.assert_all_used()?;
    let n_parts = usize::try_from(maxsplit).map_or(usize::MAX, |maxsplit| maxsplit.saturating_add(1));
    let parts: Vec<&str> = match separator {
        Some(separator) => {
            let separator = separator
                .as_str()
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "the separator of split must be a string"))?;
            let separator = non_empty(separator)?;
            if from_right {
                let mut parts: Vec<&str> = text.rsplitn(n_parts, separator).collect();
                parts.reverse();
                parts
            } else {
                text.splitn(n_parts, separator).collect()
            }
        }
        None => split_whitespace(text, n_parts, from_right),
    };
    Ok(list(parts))
}

/// Splits into words. After `n_parts - 1` words the rest is the last part (from the right: the first part). Like Python, keeps the
/// whitespace at its far end.
fn split_whitespace(text: &str, n_parts: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let skip = |rest: &str| {
        let trimmed =
            if from_right { rest.trim_end_matches(is_python_space) } else { rest.trim_start_matches(is_python_space) };
        trimmed.len()
    };
    let mut rest = text;
    loop {
        let len = skip(rest);
        rest = if from_right { &rest[..len] } else { &rest[rest.len() - len..] };
        if rest.is_empty() {
            break;
        }
        if parts.len() + 1 == n_parts {
            parts.push(rest);
            break;
        }
        if from_right {
            let last_space = rest.char_indices().rfind(|(_, character)| is_python_space(*character));
            let start = last_space.map_or(0, |(at, space)| at + space.len_utf8());
            parts.push(&rest[start..]);
            rest = &rest[..start];
        } else {
            let end = rest.find(is_python_space).unwrap_or(rest.len());
            parts.push(&rest[..end]);
            rest = &rest[end..];
        }
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// Python's `str.isspace`: Unicode white space and ASCII's four separators.
fn is_python_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1C}'..='\u{1F}')
}

/// Splits at Python's line ends, which are more than `\n` and `\r\n`.
pub(super) fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |character| {
        matches!(character, '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{1C}'..='\u{1E}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, end) = match rest.char_indices().find(|(_, character)| is_end(*character)) {
            Some((at, _)) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some((at, character)) => (at, at + character.len_utf8()),
            None => (rest.len(), rest.len()),
        };
        lines.push(&rest[..if keep_ends { end } else { line }]);
        rest = &rest[end..];
    }
    lines
}

fn starts_or_ends(text: &str, starts: bool, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(args)?;
    let matches = |wanted: &Value| match wanted.as_str() {
        Some(wanted) if starts => Ok(text.starts_with(wanted)),
        Some(wanted) => Ok(text.ends_with(wanted)),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("startswith and endswith want a string or a tuple of strings, not {}", wanted.kind()),
        )),
    };
    if wanted.kind() == ValueKind::Seq {
        for wanted in wanted.try_iter()? {
            if matches(&wanted)? {
                return Ok(Value::from(true));
            }
        }
        return Ok(Value::from(false));
    }
    matches(wanted).map(Value::from)
}

/// Upper case at the beginning of every run of letters. The filter with this name does something else.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for character in text.chars() {
        let has_case = character.is_uppercase() || character.is_lowercase();
        if has_case && !in_word {
            titled.extend(character.to_uppercase());
        } else {
            titled.extend(character.to_lowercase());
        }
        in_word = has_case;
    }
    titled
}

pub(super) fn capitalize(text: &str) -> String {
    let mut rest = text.chars();
    // Python uses the title case of the first character: one letter for a ligature, `Ss` for `ß`.
    let mut capitalized = String::with_capacity(text.len());
    if let Some(first) = rest.next() {
        let mut upper = first.to_uppercase();
        capitalized.extend(upper.next());
        capitalized.extend(upper.flat_map(char::to_lowercase));
    }
    capitalized + &rest.as_str().to_lowercase()
}

fn swap_case(character: char) -> String {
    if character.is_uppercase() { character.to_lowercase().to_string() } else { character.to_uppercase().to_string() }
}

#[derive(Clone, Copy)]
pub(super) enum Side {
    Left,
    Right,
    Both,
}

pub(super) fn pad(text: &str, width: usize, fill: char, side: Side) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let left = match side {
        Side::Left => missing,
        Side::Right => 0,
        // If the width is odd, Python puts the extra character on the left.
        Side::Both => missing / 2 + (missing & width & 1),
    };
    let mut padded = String::with_capacity(text.len() + missing);
    padded.extend(std::iter::repeat_n(fill, left));
    padded.push_str(text);
    padded.extend(std::iter::repeat_n(fill, missing - left));
    padded
}

fn expand_tabs(text: &str, width: usize) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut column = 0;
    for character in text.chars() {
        match character {
            '\t' if width > 0 => {
                let spaces = width - column % width;
                expanded.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            '\t' => {}
            '\n' | '\r' => {
                expanded.push(character);
                column = 0;
            }
            _ => {
                expanded.push(character);
                column += 1;
            }
        }
    }
    expanded
}

/// Replaces the first `count` occurrences, or all. A short text may become a long one in many places.
pub(super) fn replace_text(
    state: &mut State,
    text: &str,
    old: &str,
    new: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    let count = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let places = text.matches(old).take(count).count() as u64;
    pay(state, places.saturating_mul(new.len() as u64))?;
    Ok(text.replacen(old, new, count))
}
