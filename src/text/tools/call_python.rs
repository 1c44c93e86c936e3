//! Calls written as Python: `name(city="Paris", days=3)`, `name.call(query="…")`, `[first(a=1), second(b=[True])]`. Returns the arguments
//! as JSON, each when it is complete.

use std::collections::HashSet;

use serde_json::Value;

use super::definition::{MAX_HEAD, is_name_character};
use super::output::Output;

/// The limit of serde_json.
const MAX_DEPTH: usize = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A call is expected.
    Start,
    Name,
    /// An argument or the end is expected.
    Argument,
    Keyword,
    Value,
    /// After an argument.
    AfterArgument,
    /// After a call: a comma or the end of the list or of `print`.
    AfterCall,
}

/// Reads one call or a list of them.
#[derive(Clone, Debug)]
pub(super) struct PythonReader {
    state: State,
    /// Only the request's functions count as calls.
    only_known: bool,
    in_list: bool,
    in_print: bool,
    /// The name of the current call or argument.
    name: String,
    value: String,
    lexer: Lexer,
    /// The call's arguments that were returned.
    arguments: HashSet<String>,
}

impl PythonReader {
    pub fn new(only_known: bool) -> Self {
        Self {
            state: State::Start,
            only_known,
            in_list: false,
            in_print: false,
            name: String::new(),
            value: String::new(),
            lexer: Lexer::default(),
            arguments: HashSet::new(),
        }
    }

    /// Reads as much of a text as possible, up to the end of one call. Returns the bytes read and whether it is done. An error has the
    /// bytes read too.
    pub fn take(&mut self, text: &str, out: &mut Output) -> Result<(usize, bool), (usize, String)> {
        let calls = out.calls();
        for (at, c) in text.char_indices() {
            let done = self.feed(c, out).map_err(|reason| (at, reason.to_owned()))?;
            if done || out.calls() > calls {
                return Ok((at + c.len_utf8(), done));
            }
        }
        Ok((text.len(), false))
    }

    fn feed(&mut self, c: char, out: &mut Output) -> Result<bool, &'static str> {
        let begins_name = c.is_alphabetic() || c == '_';
        match self.state {
            State::Name => match c {
                c if is_name_character(c) && self.name.len() < MAX_HEAD => self.name.push(c),
                '(' if self.name == "print" && !self.in_print => {
                    self.in_print = true;
                    self.state = State::Start;
                }
                '(' => self.begin(out)?,
                _ => return Err("expected an opening parenthesis after the name of a function"),
            },
            State::Keyword => match c {
                '=' if self.arguments.contains(&self.name) => return Err("an argument is given twice"),
                '=' => {
                    self.value.clear();
                    self.lexer = Lexer::default();
                    self.state = State::Value;
                }
                c if (c.is_alphanumeric() || c == '_') && self.name.len() < MAX_HEAD => self.name.push(c),
                c if c.is_whitespace() => {}
                _ => return Err("an argument has no name"),
            },
            State::Value => match c {
                ',' | ')' if self.lexer.is_outside() => {
                    self.argument(out)?;
                    self.state = State::AfterArgument;
                    return self.feed(c, out);
                }
                c => {
                    self.lexer.feed(c)?;
                    self.value.push(c);
                }
            },
            _ if c.is_whitespace() => {}
            State::Start => match c {
                '[' if !self.in_list && !self.in_print => self.in_list = true,
                c if begins_name => {
                    self.name = c.into();
                    self.state = State::Name;
                }
                _ => return Err("expected the name of a function"),
            },
            State::Argument => match c {
                ')' => return Ok(self.end(out)),
                c if begins_name => {
                    self.name = c.into();
                    self.state = State::Keyword;
                }
                _ => return Err("an argument has no name"),
            },
            State::AfterArgument => match c {
                ',' => self.state = State::Argument,
                ')' => return Ok(self.end(out)),
                _ => return Err("expected a comma or a closing parenthesis"),
            },
            State::AfterCall => match c {
                ')' if self.in_print => {
                    self.in_print = false;
                    return Ok(!self.in_list);
                }
                ',' if self.in_list && !self.in_print => self.state = State::Start,
                ']' if self.in_list && !self.in_print => return Ok(true),
                _ => return Err("expected a comma or a closing bracket after a call"),
            },
        }
        Ok(false)
    }

    fn begin(&mut self, out: &mut Output) -> Result<(), &'static str> {
        let name = self.function(out);
        if self.only_known && out.tools.get(&name).is_none() {
            return Err("no function of the request has this name");
        }
        out.begin(name, None);
        out.arguments("{");
        self.arguments.clear();
        self.state = State::Argument;
        Ok(())
    }

    /// The function's own name: models also write `search.call(…)` and `default_api.search(…)`.
    fn function(&self, out: &Output) -> String {
        let name = self.name.as_str();
        let called = name.strip_suffix(".call").unwrap_or(name);
        let last = called.rsplit('.').next().unwrap_or(called);
        let known = [name, called, last].into_iter().find(|name| out.tools.get(name).is_some());
        known.unwrap_or(called).to_owned()
    }

    fn argument(&mut self, out: &mut Output) -> Result<(), &'static str> {
        let value = literal(&self.value).ok_or("the value of an argument is not a literal")?;
        let comma = if self.arguments.is_empty() { "" } else { ", " };
        out.arguments(&format!("{comma}{}: {value}", Value::from(self.name.as_str())));
        self.arguments.insert(std::mem::take(&mut self.name));
        Ok(())
    }

    fn end(&mut self, out: &mut Output) -> bool {
        out.arguments("}");
        out.end();
        self.state = State::AfterCall;
        !self.in_list && !self.in_print
    }
}

/// Follows strings and brackets to find where an expression ends.
#[derive(Clone, Copy, Debug, Default)]
struct Lexer {
    depth: usize,
    string: Quotes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Quotes {
    #[default]
    Outside,
    /// How many quotes have opened a string so far.
    Opening(char, u8),
    Inside(char, bool),
    Escape(char, bool),
    /// How many of the three closing quotes were read.
    Closing(char, u8),
}

impl Lexer {
    fn is_outside(&self) -> bool {
        // Two quotes and no third: an empty string.
        self.depth == 0 && matches!(self.string, Quotes::Outside | Quotes::Opening(_, 2))
    }

    fn feed(&mut self, c: char) -> Result<(), &'static str> {
        self.string = match self.string {
            Quotes::Opening(quote, 1) if c == quote => Quotes::Opening(quote, 2),
            Quotes::Opening(quote, 2) if c == quote => Quotes::Inside(quote, true),
            Quotes::Opening(quote, 1) => Self::inside(quote, false, c),
            Quotes::Inside(quote, triple) => Self::inside(quote, triple, c),
            Quotes::Escape(quote, triple) => Quotes::Inside(quote, triple),
            Quotes::Closing(quote, 2) if c == quote => Quotes::Outside,
            Quotes::Closing(quote, closed) if c == quote => Quotes::Closing(quote, closed + 1),
            Quotes::Closing(quote, _) => Self::inside(quote, true, c),
            Quotes::Outside | Quotes::Opening(..) => {
                match c {
                    '[' | '{' | '(' => self.depth += 1,
                    ']' | '}' | ')' => {
                        self.depth = self.depth.checked_sub(1).ok_or("a closing bracket has no opening one")?;
                    }
                    _ => {}
                }
                if matches!(c, '"' | '\'') { Quotes::Opening(c, 1) } else { Quotes::Outside }
            }
        };
        Ok(())
    }

    fn inside(quote: char, triple: bool, c: char) -> Quotes {
        match c {
            '\\' => Quotes::Escape(quote, triple),
            c if c != quote => Quotes::Inside(quote, triple),
            _ if triple => Quotes::Closing(quote, 1),
            _ => Quotes::Outside,
        }
    }
}

/// A Python literal as JSON. Also accepts JSON's own words.
pub(super) fn literal(text: &str) -> Option<Value> {
    let mut rest = text.trim();
    let value = value(&mut rest, 0)?;
    rest.trim().is_empty().then_some(value)
}

fn value(rest: &mut &str, depth: usize) -> Option<Value> {
    *rest = rest.trim_start();
    match rest.chars().next()? {
        _ if depth > MAX_DEPTH => None,
        '"' | '\'' => string(rest).map(Value::String),
        open @ ('[' | '(') => {
            let close = if open == '[' { ']' } else { ')' };
            let mut elements = Vec::new();
            elements_until(rest, close, |rest| {
                elements.push(value(rest, depth + 1)?);
                Some(())
            })?;
            Some(Value::Array(elements))
        }
        '{' => {
            let mut fields = serde_json::Map::new();
            elements_until(rest, '}', |rest| {
                let Value::String(key) = value(rest, depth + 1)? else { return None };
                *rest = rest.trim_start().strip_prefix(':')?;
                fields.insert(key, value(rest, depth + 1)?);
                Some(())
            })?;
            Some(Value::Object(fields))
        }
        _ => {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.' | '_'));
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            *rest = after;
            match word {
                "True" | "true" => Some(Value::Bool(true)),
                "False" | "false" => Some(Value::Bool(false)),
                "None" | "null" => Some(Value::Null),
                word => serde_json::from_str(word).ok().filter(Value::is_number),
            }
        }
    }
}

/// Reads the items between brackets. Commas separate them, and one may follow the last.
fn elements_until(rest: &mut &str, close: char, mut element: impl FnMut(&mut &str) -> Option<()>) -> Option<()> {
    *rest = &rest[1..];
    loop {
        *rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(close) {
            *rest = after;
            return Some(());
        }
        element(rest)?;
        *rest = rest.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => *rest = after,
            None if rest.starts_with(close) => {}
            None => return None,
        }
    }
}

fn string(rest: &mut &str) -> Option<String> {
    let quote = &rest[..1];
    let triple = quote.repeat(3);
    let quotes = if rest.starts_with(&triple) { triple.as_str() } else { quote };
    let mut text = String::new();
    let mut left = &rest[quotes.len()..];
    loop {
        if let Some(after) = left.strip_prefix(quotes) {
            *rest = after;
            return Some(text);
        }
        let mut characters = left.chars();
        match characters.next()? {
            '\\' => {
                let escaped = characters.next()?;
                left = characters.as_str();
                match escaped {
                    '\n' => {}
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    '\\' | '\'' | '"' => text.push(escaped),
                    'x' => text.push(char::from_u32(digits(&mut left, 2)?)?),
                    'U' => text.push(char::from_u32(digits(&mut left, 8)?)?),
                    'u' => {
                        let first = digits(&mut left, 4)?;
                        text.push(match char::from_u32(first) {
                            Some(c) => c,
                            // As in JSON, a character may be two escapes.
                            None => {
                                left = left.strip_prefix("\\u")?;
                                let units = [first as u16, digits(&mut left, 4)? as u16];
                                char::decode_utf16(units).next()?.ok()?
                            }
                        });
                    }
                    // Like Python, keeps unknown escapes.
                    other => text.extend(['\\', other]),
                }
            }
            c => {
                text.push(c);
                left = characters.as_str();
            }
        }
    }
}

/// A number in hexadecimal digits.
fn digits(rest: &mut &str, count: usize) -> Option<u32> {
    let (digits, after) = (rest.get(..count)?, rest.get(count..)?);
    *rest = after;
    digits.chars().try_fold(0u32, |number, c| number.checked_mul(16)?.checked_add(c.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn literals_become_json() {
        for (text, wanted) in [
            ("'a\\'b'", json!("a'b")),
            ("\"\"\"a \"quoted\"\nline\"\"\"", json!("a \"quoted\"\nline")),
            ("''", json!("")),
            ("[1, -2.5, True, None, ('x',),]", json!([1, -2.5, true, null, ["x"]])),
            ("{'a': {\"b\": []}, 'c': False}", json!({"a": {"b": []}, "c": false})),
            ("'\\u00e9\\x41\\d'", json!("éA\\d")),
            ("'\\ud83d\\ude00\\U0001f600'", json!("\u{1f600}\u{1f600}")),
        ] {
            assert_eq!(literal(text), Some(wanted), "{text}");
        }
        for text in [
            "",
            "x",
            "f(1)",
            "'a",
            "[1",
            "1 2",
            "{1: 2}",
            "1_000",
            "lambda: 0",
            "'\\ud800'",
            "'\\ud83d\\u0041'",
            "'\\x+1'",
        ] {
            assert_eq!(literal(text), None, "{text}");
        }
        assert_eq!(literal(&"[".repeat(100_000)), None);
    }
}
