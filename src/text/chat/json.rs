//! `tojson` as Hugging Face transformers defines it for chat templates: Python's `json.dumps` with `ensure_ascii` off, no escaping of HTML,
//! and the arguments `indent`, `separators` and `sort_keys`. Also Python's form of a float.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

struct Style {
    ensure_ascii: bool,
    /// The indentation per level; `None` writes everything in one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `value|tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(value: &Value, arguments: Rest<Value>, options: Kwargs) -> Result<String, Error> {
    let mut arguments = arguments.0.into_iter();
    let mut argument = |name: &str| -> Result<Option<Value>, Error> {
        let given = match arguments.next() {
            Some(value) => Some(value),
            None => options.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument("ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match argument("indent")? {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(width) => Some(" ".repeat(usize::try_from(i64::try_from(width)?).unwrap_or(0))),
    };
    let (item_separator, key_separator) = match argument("separators")? {
        Some(pair) => {
            let mut pair = pair.try_iter()?;
            match (pair.next(), pair.next(), pair.next()) {
                (Some(item), Some(key), None) => (item.to_string(), key.to_string()),
                _ => return Err(invalid("separators of tojson must be two strings".to_owned())),
            }
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let sort_keys = argument("sort_keys")?.is_some_and(|value| value.is_true());
    if arguments.next().is_some() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    options.assert_all_used()?;
    let style = Style { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut json = String::new();
    write_value(value, &style, 0, &mut json)?;
    Ok(json)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Deeper than any real tool schema, but far from overflowing the stack.
const MAX_DEPTH: usize = 200;

fn write_value(value: &Value, style: &Style, depth: usize, json: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("tojson: the value is nested deeper than {MAX_DEPTH} levels")));
    }
    match value.kind() {
        ValueKind::None => json.push_str("null"),
        ValueKind::Bool => json.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => json.push_str(&value.to_string()),
        ValueKind::Number => json.push_str(&python_float(f64::try_from(value.clone())?, "NaN", "Infinity")),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style.ensure_ascii, json),
        ValueKind::Map => write_map(value, style, depth, json)?,
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                items.push(item);
            }
            write_nested('[', ']', items.len(), style, depth, json, |index, json| {
                write_value(&items[index], style, depth + 1, json)
            })?;
        }
        kind => return Err(invalid(format!("tojson: a value of type {kind} is not JSON serializable"))),
    }
    Ok(())
}

fn write_map(map: &Value, style: &Style, depth: usize, json: &mut String) -> Result<(), Error> {
    let mut keys: Vec<Value> = map.try_iter()?.collect();
    if style.sort_keys {
        keys.sort();
    }
    write_nested('{', '}', keys.len(), style, depth, json, |index, json| {
        let key = &keys[index];
        match key.kind() {
            ValueKind::String => write_string(key.as_str().unwrap_or_default(), style.ensure_ascii, json),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                json.push('"');
                write_value(key, style, depth + 1, json)?;
                json.push('"');
            }
            kind => return Err(invalid(format!("tojson: keys must be strings or numbers, not {kind}"))),
        }
        json.push_str(&style.key_separator);
        write_value(&map.get_item(key)?, style, depth + 1, json)
    })
}

fn write_nested(
    open: char,
    close: char,
    n_items: usize,
    style: &Style,
    depth: usize,
    json: &mut String,
    mut write_item: impl FnMut(usize, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    json.push(open);
    let new_line = |depth: usize, json: &mut String| {
        if let Some(indent) = &style.indent {
            json.push('\n');
            (0..depth).for_each(|_| json.push_str(indent));
        }
    };
    for index in 0..n_items {
        if index > 0 {
            json.push_str(&style.item_separator);
        }
        new_line(depth + 1, json);
        write_item(index, json)?;
    }
    if n_items > 0 {
        new_line(depth, json);
    }
    json.push(close);
    Ok(())
}

fn write_string(text: &str, ensure_ascii: bool, json: &mut String) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{C}' => json.push_str("\\f"),
            '\0'..=' ' if character != ' ' => json.push_str(&format!("\\u{:04x}", u32::from(character))),
            '\u{7F}'.. if ensure_ascii && character != '\u{7F}' => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    json.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

/// The shortest digits that parse to the same number, with an exponent from 1e16 on and below 1e-4: Python's `repr`.
pub(super) fn python_float(number: f64, nan: &str, infinity: &str) -> String {
    if number.is_nan() {
        return nan.to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { infinity.to_owned() } else { format!("-{infinity}") };
    }
    // Rust's debug format has the same digits and thresholds, but writes `1e16` where Python has `1e+16`.
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}
