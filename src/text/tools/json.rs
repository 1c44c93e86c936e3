//! Reads JSON character by character (RFC 8259): finds where a value ends, and refuses text that is not JSON as early as possible.
//!
//! One exception: models write line breaks and tabs literally into strings. These are escaped, so that the output is JSON.

use std::fmt::Write;

/// Deeper values are refused, like in serde_json.
const MAX_DEPTH: usize = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    FirstKey,
    Key,
    Colon,
    FirstElement,
    AfterElement,
    /// In a string; true if it is a key.
    Text(bool),
    Escape(bool),
    Unicode(Unicode),
    /// After a high surrogate: expects the low one's backslash and its `u`.
    SecondHalf(bool),
    SecondEscape(bool),
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Literal(&'static str),
    Done,
}

/// The digits after `\u`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unicode {
    is_key: bool,
    /// How many digits are missing.
    left: u8,
    /// The value of the digits so far.
    unit: u32,
    /// Whether it is a low surrogate.
    is_second: bool,
}

impl Unicode {
    fn state(is_key: bool, is_second: bool) -> State {
        State::Unicode(Self { is_key, left: 4, unit: 0, is_second })
    }

    fn next(mut self, c: char) -> Result<State, &'static str> {
        let digit = c.to_digit(16).ok_or("a string has \\u without four hexadecimal digits")?;
        (self.left, self.unit) = (self.left - 1, self.unit * 16 + digit);
        match self.unit {
            _ if self.left > 0 => Ok(State::Unicode(self)),
            0xdc00..=0xdfff if self.is_second => Ok(State::Text(self.is_key)),
            _ if self.is_second => Err(HALF),
            0xd800..=0xdbff => Ok(State::SecondHalf(self.is_key)),
            0xdc00..=0xdfff => Err(HALF),
            _ => Ok(State::Text(self.is_key)),
        }
    }
}

/// JavaScript accepts this, but serde_json and others do not.
const HALF: &str = "a string has half of a character: one of two surrogates is missing";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    /// Whether the number may end here.
    fn is_whole(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::ExponentDigits)
    }

    fn next(self, c: char) -> Option<Self> {
        Some(match (self, c) {
            (Self::Minus, '0') => Self::Zero,
            (Self::Minus | Self::Digits, '0'..='9') => Self::Digits,
            (Self::Zero | Self::Digits, '.') => Self::Point,
            (Self::Point | Self::Fraction, '0'..='9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, 'e' | 'E') => Self::Exponent,
            (Self::Exponent, '+' | '-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, '0'..='9') => Self::ExponentDigits,
            _ => return None,
        })
    }
}

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    Taken,
    /// It was the last one of the value.
    Last,
    /// The value is a number, and ended before it.
    Before,
}

/// Reads one value.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    state: State,
    /// The open brackets; true for an object.
    open: Vec<bool>,
}

impl Scanner {
    pub fn new() -> Self {
        Self { state: State::Value, open: Vec::new() }
    }

    /// Reads a character, and appends it to `written` as JSON.
    pub fn feed(&mut self, c: char, written: &mut String) -> Result<Fed, &'static str> {
        let is_space = matches!(c, ' ' | '\t' | '\n' | '\r');
        let next = match self.state {
            State::Done => return Ok(Fed::Before),
            State::Text(is_key) => {
                match c {
                    '"' if is_key => self.state = State::Colon,
                    '"' => self.value_ended(),
                    '\\' => self.state = State::Escape(is_key),
                    '\n' => written.push_str("\\n"),
                    '\r' => written.push_str("\\r"),
                    '\t' => written.push_str("\\t"),
                    c if c < ' ' => {
                        let _ = write!(written, "\\u{:04x}", c as u32);
                    }
                    _ => {}
                }
                if c >= ' ' {
                    written.push(c);
                }
                return Ok(self.fed());
            }
            State::Escape(is_key) => match c {
                'u' => Unicode::state(is_key, false),
                '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => State::Text(is_key),
                _ => return Err("a string has an escape that JSON does not know"),
            },
            State::Unicode(unicode) => unicode.next(c)?,
            State::SecondHalf(is_key) if c == '\\' => State::SecondEscape(is_key),
            State::SecondEscape(is_key) if c == 'u' => Unicode::state(is_key, true),
            State::SecondHalf(_) | State::SecondEscape(_) => return Err(HALF),
            State::Number(number) => match number.next(c) {
                Some(next) => State::Number(next),
                // No digit may follow a leading zero.
                None if number.is_whole() && !c.is_ascii_digit() => {
                    self.value_ended();
                    return match self.state {
                        State::Done => Ok(Fed::Before),
                        _ => self.feed(c, written),
                    };
                }
                None => return Err("a number is not one of JSON's"),
            },
            State::Literal(rest) => match rest.strip_prefix(c) {
                Some("") => {
                    self.value_ended();
                    self.state
                }
                Some(rest) => State::Literal(rest),
                None => return Err("a word is not true, false or null"),
            },
            _ if is_space => self.state,
            State::FirstKey | State::Key => match c {
                '"' => State::Text(true),
                '}' if self.state == State::FirstKey => return self.close(true, c, written),
                _ => return Err("expected a key in quotes"),
            },
            State::Colon if c == ':' => State::Value,
            State::Colon => return Err("expected a colon after a key"),
            State::AfterElement => match (c, self.open.last()) {
                (',', Some(true)) => State::Key,
                (',', Some(false)) => State::Value,
                ('}', Some(true)) => return self.close(true, c, written),
                (']', Some(false)) => return self.close(false, c, written),
                _ => return Err("expected a comma or a closing bracket"),
            },
            State::FirstElement if c == ']' => return self.close(false, c, written),
            State::Value | State::FirstElement => match c {
                '"' => State::Text(false),
                '{' | '[' if self.open.len() == MAX_DEPTH => return Err("brackets are nested too deeply"),
                '{' => {
                    self.open.push(true);
                    State::FirstKey
                }
                '[' => {
                    self.open.push(false);
                    State::FirstElement
                }
                '-' => State::Number(Number::Minus),
                '0' => State::Number(Number::Zero),
                '1'..='9' => State::Number(Number::Digits),
                't' => State::Literal("rue"),
                'f' => State::Literal("alse"),
                'n' => State::Literal("ull"),
                _ => return Err("expected a value"),
            },
        };
        self.state = next;
        written.push(c);
        Ok(self.fed())
    }

    fn fed(&self) -> Fed {
        if self.state == State::Done { Fed::Last } else { Fed::Taken }
    }

    fn value_ended(&mut self) {
        self.state = if self.open.is_empty() { State::Done } else { State::AfterElement };
    }

    fn close(&mut self, is_object: bool, c: char, written: &mut String) -> Result<Fed, &'static str> {
        if self.open.pop() != Some(is_object) {
            return Err("a closing bracket has no opening one");
        }
        self.value_ended();
        written.push(c);
        Ok(self.fed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JSON value at the beginning of a text, and the rest of the text.
    fn scan(text: &str) -> Result<(String, String), &'static str> {
        let (mut scanner, mut written) = (Scanner::new(), String::new());
        // A number ends at the first other character.
        let ended = format!("{text} ");
        for (at, c) in ended.char_indices() {
            match scanner.feed(c, &mut written)? {
                Fed::Taken => {}
                Fed::Last => return Ok((written, ended[at + c.len_utf8()..ended.len() - 1].to_owned())),
                Fed::Before => return Ok((written, ended[at..ended.len() - 1].to_owned())),
            }
        }
        Err("it is not over")
    }

    #[test]
    fn takes_what_serde_json_takes() {
        for text in [
            "{}",
            "[]",
            " { \"a\" : [ 1 , -0.5e+3, true,false , null, \"\\u00e9\\n\\\"\" ], \"b\":{\"c\":{}} }",
            "\"é\\\\\"",
            "{\"\\ud83d\\ude00\": \"\\uD83D\\uDE00\\ufffd\"}",
            "0",
            "-12.25E-2",
            "[[],[[]],{}]",
        ] {
            let (written, rest) = scan(text).unwrap();
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&written).unwrap(),
                serde_json::from_str::<serde_json::Value>(text).unwrap()
            );
            assert_eq!(rest, "");
        }
        for text in [
            "",
            "{",
            "{a:1}",
            "{'a':1}",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            ".5",
            "-",
            "+1",
            "nul",
            "True",
            "\"\\x\"",
            "\"\\u12g4\"",
            "[1}",
            "{\"a\" 1}",
            "{\"a\"}",
            "]",
            "[1 2]",
            "\"",
            "1e",
            "tru e",
            "\"\\ud83d\"",
            "\"\\ude00\"",
            "\"\\ud83d\\n\"",
            "\"\\ud83d\\u0041\"",
            "\"\\ud83d\\ud83d\\ude00\"",
        ] {
            assert!(serde_json::from_str::<serde_json::Value>(text).is_err() && scan(text).is_err(), "{text:?}");
        }
        assert!(scan(&"[".repeat(128)).unwrap_err().contains("deep"));
    }

    #[test]
    fn tells_where_a_value_ends() {
        for (text, value, rest) in
            [("{\"a\":1}\n</t>", "{\"a\":1}", "\n</t>"), ("12]", "12", "]"), ("\"a\"b", "\"a\"", "b")]
        {
            assert_eq!(scan(text).unwrap(), (value.to_owned(), rest.to_owned()));
        }
    }

    #[test]
    fn line_breaks_in_strings_are_escaped() {
        assert_eq!(scan("{\"a\":\n\"x\ny\t\u{1}\"}").unwrap().0, "{\"a\":\n\"x\\ny\\t\\u0001\"}");
    }
}
