//! Calls written as JSON: `{"name": …, "arguments": {…}}`, or an array of these. Returns the name as soon as it is known, and the arguments
//! character by character.

use super::json::{Fed, Scanner};
use super::output::Output;

/// Fields for the name. `function` may also be an object with the fields, as in OpenAI's API.
const NAMES: [&str; 4] = ["name", "function", "tool_name", "tool"];
const ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];
/// Other fields that calls may have.
const OTHERS: [&str; 5] = ["id", "tool_call_id", "type", "call_id", "index"];

/// How strictly to read an object as a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It is between markers, so it is meant as a call, even if the function is unknown.
    Marked,
    /// It may also be the answer itself. It is a call only if the request has the function and all fields are known.
    Unmarked,
}

#[derive(Clone, Debug)]
enum State {
    Open,
    FirstKey,
    NextKey,
    Key(Scanner, String),
    Colon(Field),
    Value(Field),
    Name(Scanner, String),
    Id(Scanner, String),
    Arguments(Scanner),
    /// The arguments are a string that contains JSON.
    QuotedArguments(Scanner, String),
    Skipped(Scanner),
    AfterValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Id,
    Other,
}

/// Reads one call.
#[derive(Clone, Debug)]
pub(super) struct CallReader {
    trust: Trust,
    state: State,
    name: Option<String>,
    id: Option<String>,
    /// Arguments that came before the name, or were just read.
    arguments: String,
    has_arguments: bool,
    begun: bool,
    /// Inside of `"function": {…}`.
    nested: bool,
}

impl CallReader {
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            state: State::Open,
            name: None,
            id: None,
            arguments: String::new(),
            has_arguments: false,
            begun: false,
            nested: false,
        }
    }

    /// Reads a character; returns true at the last one of the call.
    pub fn feed(&mut self, c: char, out: &mut Output) -> Result<bool, String> {
        let is_space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match &mut self.state {
            State::Key(scanner, text) => {
                if scanner.feed(c, text)? == Fed::Last {
                    let key = unquoted(text)?;
                    self.state = State::Colon(self.field(&key)?);
                }
            }
            State::Name(scanner, text) => {
                if scanner.feed(c, text)? == Fed::Last {
                    let name = unquoted(text)?;
                    self.named(name, out)?;
                }
            }
            State::Id(scanner, text) => match scanner.feed(c, text)? {
                Fed::Taken => {}
                fed => {
                    self.id = unquoted(text).ok().filter(|id| !id.is_empty());
                    return self.value_ended(fed, c, out);
                }
            },
            State::Arguments(scanner) => {
                let fed = scanner.feed(c, &mut self.arguments)?;
                self.flush(out);
                if fed == Fed::Last {
                    self.state = State::AfterValue;
                }
            }
            State::QuotedArguments(scanner, text) => {
                if scanner.feed(c, text)? == Fed::Last {
                    let arguments = unquoted(text)?;
                    match serde_json::from_str(&arguments) {
                        Ok(serde_json::Value::Object(_)) => self.arguments = arguments,
                        _ if arguments.trim().is_empty() => self.arguments = "{}".to_owned(),
                        _ => return Err("the arguments are a string without a JSON object".to_owned()),
                    }
                    self.flush(out);
                    self.state = State::AfterValue;
                }
            }
            State::Skipped(scanner) => match scanner.feed(c, &mut String::new())? {
                Fed::Taken => {}
                fed => return self.value_ended(fed, c, out),
            },
            _ if is_space => {}
            State::Open if c == '{' => self.state = State::FirstKey,
            State::Open => return Err("a call begins with a brace".to_owned()),
            State::FirstKey | State::NextKey if c == '"' => {
                let (mut scanner, mut text) = (Scanner::new(), String::new());
                scanner.feed(c, &mut text)?;
                self.state = State::Key(scanner, text);
            }
            State::FirstKey if c == '}' => return self.closed(out),
            State::FirstKey | State::NextKey => return Err("expected a key in quotes".to_owned()),
            State::Colon(field) if c == ':' => self.state = State::Value(*field),
            State::Colon(_) => return Err("expected a colon after a key".to_owned()),
            State::Value(field) => {
                let field = *field;
                return self.value(field, c, out);
            }
            State::AfterValue => match c {
                ',' => self.state = State::NextKey,
                '}' => return self.closed(out),
                _ => return Err("expected a comma or a closing brace".to_owned()),
            },
        }
        Ok(false)
    }

    fn field(&self, key: &str) -> Result<Field, String> {
        let field = match key {
            key if NAMES.contains(&key) && self.name.is_none() => Field::Name,
            key if ARGUMENTS.contains(&key) && !self.has_arguments => Field::Arguments,
            key if NAMES.contains(&key) || ARGUMENTS.contains(&key) => {
                return Err(format!("the call has {key:?} beside another field that says the same"));
            }
            "id" | "tool_call_id" => Field::Id,
            key if self.trust == Trust::Marked || OTHERS.contains(&key) => Field::Other,
            key => return Err(format!("a call has no field {key:?}")),
        };
        Ok(field)
    }

    /// The first character of a value.
    fn value(&mut self, field: Field, c: char, out: &mut Output) -> Result<bool, String> {
        let mut scanner = Scanner::new();
        let mut text = String::new();
        self.state = match (field, c) {
            (Field::Name, '"') => {
                scanner.feed(c, &mut text)?;
                State::Name(scanner, text)
            }
            (Field::Name, '{') if !self.nested => {
                self.nested = true;
                State::FirstKey
            }
            (Field::Name, _) => return Err("the name of the function is not a string".to_owned()),
            (Field::Arguments, '{') => {
                self.has_arguments = true;
                scanner.feed(c, &mut self.arguments)?;
                self.flush(out);
                State::Arguments(scanner)
            }
            (Field::Arguments, '"') => {
                self.has_arguments = true;
                scanner.feed(c, &mut text)?;
                State::QuotedArguments(scanner, text)
            }
            // No arguments; `closed` writes an empty object.
            (Field::Arguments, 'n') | (Field::Other, _) => {
                scanner.feed(c, &mut text)?;
                State::Skipped(scanner)
            }
            (Field::Arguments, _) => return Err("the arguments are not an object".to_owned()),
            (Field::Id, _) => {
                scanner.feed(c, &mut text)?;
                State::Id(scanner, text)
            }
        };
        Ok(false)
    }

    fn value_ended(&mut self, fed: Fed, c: char, out: &mut Output) -> Result<bool, String> {
        self.state = State::AfterValue;
        if fed == Fed::Before { self.feed(c, out) } else { Ok(false) }
    }

    fn named(&mut self, name: String, out: &mut Output) -> Result<(), String> {
        if name.is_empty() {
            return Err("the name of the function is empty".to_owned());
        }
        if self.trust == Trust::Unmarked && out.tools.get(&name).is_none() {
            return Err(format!("no function of the request has the name {name:?}"));
        }
        self.name = Some(name);
        self.state = State::AfterValue;
        self.flush(out);
        Ok(())
    }

    /// Returns what is certain. The call begins with its arguments, so that an id before them is known.
    fn flush(&mut self, out: &mut Output) {
        let Some(name) = &self.name else { return };
        if !self.begun && self.has_arguments {
            self.begun = true;
            out.begin(name.clone(), self.id.take());
        }
        if self.begun {
            out.arguments(&std::mem::take(&mut self.arguments));
        }
    }

    fn closed(&mut self, out: &mut Output) -> Result<bool, String> {
        if self.nested {
            self.nested = false;
            self.state = State::AfterValue;
            return Ok(false);
        }
        if self.name.is_none() {
            return Err("the call names no function".to_owned());
        }
        if !self.has_arguments {
            if self.trust == Trust::Unmarked {
                return Err("the call has no arguments".to_owned());
            }
            self.has_arguments = true;
            self.arguments.push_str("{}");
        }
        self.flush(out);
        out.end();
        Ok(true)
    }
}

/// Reads one call or an array of calls.
#[derive(Clone, Debug)]
pub(super) struct CallsReader {
    trust: Trust,
    state: Calls,
}

#[derive(Clone, Debug)]
enum Calls {
    Start,
    One(Box<CallReader>),
    /// A call is expected, or the end of an empty array.
    Next {
        first: bool,
    },
    InArray(Box<CallReader>),
    Between,
}

impl CallsReader {
    pub fn new(trust: Trust) -> Self {
        Self { trust, state: Calls::Start }
    }

    /// Reads a character; returns true at the last one.
    fn feed(&mut self, c: char, out: &mut Output) -> Result<bool, String> {
        let is_space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match &mut self.state {
            Calls::One(call) => return call.feed(c, out),
            Calls::InArray(call) => {
                if call.feed(c, out)? {
                    self.state = Calls::Between;
                }
            }
            _ if is_space => {}
            Calls::Start | Calls::Next { .. } if c == '{' => {
                let mut call = Box::new(CallReader::new(self.trust));
                call.feed(c, out)?;
                let is_one = matches!(self.state, Calls::Start);
                self.state = if is_one { Calls::One(call) } else { Calls::InArray(call) };
            }
            Calls::Start if c == '[' => self.state = Calls::Next { first: true },
            Calls::Next { first: true } if c == ']' && self.trust == Trust::Marked => return Ok(true),
            Calls::Start | Calls::Next { .. } => return Err("a call begins with a brace".to_owned()),
            Calls::Between => match c {
                ',' => self.state = Calls::Next { first: false },
                ']' => return Ok(true),
                _ => return Err("expected a comma or a closing bracket between calls".to_owned()),
            },
        }
        Ok(false)
    }

    /// Reads as much of a text as possible, up to the end of one call. Returns the bytes read and whether it is done.
    pub fn take(&mut self, text: &str, out: &mut Output) -> Result<(usize, bool), (usize, String)> {
        let calls = out.calls();
        for (at, c) in text.char_indices() {
            let done = self.feed(c, out).map_err(|reason| (at, reason))?;
            if done || out.calls() > calls {
                return Ok((at + c.len_utf8(), done));
            }
        }
        Ok((text.len(), false))
    }
}

/// Reads the arguments alone: an object.
#[derive(Clone, Debug)]
pub(super) struct ArgumentsReader {
    scanner: Scanner,
    begun: bool,
}

impl ArgumentsReader {
    pub fn new() -> Self {
        Self { scanner: Scanner::new(), begun: false }
    }

    /// The opening brace was read and returned.
    pub fn open(&mut self) {
        self.begun = self.scanner.feed('{', &mut String::new()).is_ok();
    }

    /// Reads as much of a text as possible. Returns the bytes read and whether it is done.
    pub fn take(&mut self, text: &str, out: &mut Output) -> Result<(usize, bool), (usize, String)> {
        let mut written = String::new();
        let taken = self.scan(text, &mut written);
        out.arguments(&written);
        taken
    }

    fn scan(&mut self, text: &str, written: &mut String) -> Result<(usize, bool), (usize, String)> {
        for (at, c) in text.char_indices() {
            match c {
                c if !self.begun && c.is_whitespace() => continue,
                '{' => self.begun = true,
                _ if !self.begun => return Err((at, "the arguments are not an object".to_owned())),
                _ => {}
            }
            if self.scanner.feed(c, written).map_err(|reason| (at, reason.to_owned()))? == Fed::Last {
                return Ok((at + c.len_utf8(), true));
            }
        }
        Ok((text.len(), false))
    }
}

fn unquoted(text: &str) -> Result<String, String> {
    serde_json::from_str(text).map_err(|_| "a text is not one of JSON's".to_owned())
}
