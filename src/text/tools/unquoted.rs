//! Calls like `call:name{city:"Paris",days:3}`, with markers instead of quotes: FunctionGemma and Gemma 4. Keys have no quotes, and texts
//! are between markers.

use serde_json::Value;

use super::definition::MAX_HEAD;
use super::markers::{Beginning, Found, Near, beginning, find, find_near, space};
use super::output::{Broken, End, Output, Syntax};

/// A family's markers.
pub(super) struct Quoting {
    pub open: &'static str,
    pub close: &'static str,
    /// Before and after a text.
    pub quote: &'static str,
}

const CALL: &str = "call:";
/// The limit of serde_json.
const MAX_DEPTH: usize = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    Call,
    Name,
    /// A key or the end of an object is expected.
    Key,
    Value {
        may_end: bool,
    },
    /// A text between quotes.
    Quoted,
    AfterValue,
    Closing,
}

pub(super) struct UnquotedReader {
    markers: &'static Quoting,
    state: State,
    /// The open brackets: for each, whether it is an object, and whether it has items.
    open: Vec<(bool, bool)>,
    /// How many bytes of the current word were searched for its end.
    searched: usize,
}

impl UnquotedReader {
    pub fn new(markers: &'static Quoting) -> Self {
        Self { markers, state: State::Text, open: Vec::new(), searched: 0 }
    }

    fn text(&mut self, text: &str, ended: bool, out: &mut Output) -> usize {
        match find(text, &[self.markers.open], ended) {
            Found::Marker { start: 0, .. } => {
                out.open();
                self.state = State::Call;
                self.markers.open.len()
            }
            Found::Marker { start, .. } | Found::NoneBefore(start) => {
                out.text(&text[..start]);
                start
            }
        }
    }

    fn push(&mut self, is_object: bool, out: &mut Output) -> Result<(), Broken> {
        if self.open.len() == MAX_DEPTH {
            return Err(Broken::at(0, "brackets are nested too deeply"));
        }
        self.open.push((is_object, false));
        out.arguments(if is_object { "{" } else { "[" });
        self.state = if is_object { State::Key } else { State::Value { may_end: true } };
        Ok(())
    }

    fn pop(&mut self, out: &mut Output) {
        let is_object = self.open.pop().is_some_and(|(is_object, _)| is_object);
        out.arguments(if is_object { "}" } else { "]" });
        self.state = State::AfterValue;
        if self.open.is_empty() {
            out.end();
            self.state = State::Closing;
        }
    }

    /// Writes a comma before all items except the first.
    fn separate(&mut self, out: &mut Output) {
        if let Some((_, has_some)) = self.open.last_mut() {
            if *has_some {
                out.arguments(", ");
            }
            *has_some = true;
        }
    }

    fn key(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        if text.starts_with('}') {
            self.pop(out);
            return Ok(1);
        }
        let quote = self.markers.quote;
        if beginning(text, &[quote], false) == Beginning::Undecided {
            return Ok(0);
        }
        // Some models quote their keys.
        let (key, used) = match text.strip_prefix(quote) {
            Some(rest) => match find_near(rest, &[quote], MAX_HEAD) {
                Near::Marker { start, .. } => (&rest[..start], 2 * quote.len() + start),
                Near::Undecided => return Ok(0),
                Near::TooFar => return Err(Broken::at(0, "a key does not end")),
            },
            None => match text.find([':', '{', '}', '[', ']', ',']) {
                Some(end) if end <= MAX_HEAD => (text[..end].trim().trim_matches('"'), end),
                None if text.len() <= MAX_HEAD => return Ok(0),
                _ => return Err(Broken::at(0, "a key does not end")),
            },
        };
        let Some(colon) = text[used..].chars().next() else { return Ok(0) };
        if key.is_empty() || colon != ':' {
            return Err(Broken::at(0, "expected a key and a colon"));
        }
        self.separate(out);
        out.arguments(&format!("{}: ", Value::from(key)));
        self.state = State::Value { may_end: false };
        Ok(used + 1)
    }

    fn value(&mut self, may_end: bool, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let in_list = self.open.last().is_some_and(|(is_object, _)| !is_object);
        if may_end && text.starts_with(']') {
            self.pop(out);
            return Ok(1);
        }
        match beginning(text, &[self.markers.quote], false) {
            Beginning::Undecided => return Ok(0),
            Beginning::Marker(_) => {
                if in_list {
                    self.separate(out);
                }
                out.arguments("\"");
                self.state = State::Quoted;
                return Ok(self.markers.quote.len());
            }
            Beginning::Other => {}
        }
        if text.starts_with(['{', '[']) {
            if in_list {
                self.separate(out);
            }
            self.push(text.starts_with('{'), out)?;
            return Ok(1);
        }
        // A word ends at the first other character.
        let Some(end) = text[self.searched..].find([',', '}', ']', '{', '[']) else {
            self.searched = text.len();
            return Ok(0);
        };
        let end = std::mem::take(&mut self.searched) + end;
        let word = text[..end].trim();
        if word.is_empty() || word.contains('<') {
            return Err(Broken::at(0, "expected a value"));
        }
        if in_list {
            self.separate(out);
        }
        let value = serde_json::from_str(word).unwrap_or_else(|_| Value::from(word));
        out.arguments(&value.to_string());
        self.state = State::AfterValue;
        Ok(end)
    }

    fn quoted(&mut self, text: &str, out: &mut Output) -> usize {
        let (end, used, is_over) = match find(text, &[self.markers.quote], false) {
            Found::Marker { start, .. } => (start, start + self.markers.quote.len(), true),
            Found::NoneBefore(certain) => (certain, certain, false),
        };
        let quoted = Value::from(&text[..end]).to_string();
        out.arguments(&quoted[1..quoted.len() - 1]);
        if is_over {
            out.arguments("\"");
            self.state = State::AfterValue;
        }
        used
    }

    fn after_value(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let Some(&(is_object, _)) = self.open.last() else { return Err(Broken::at(0, "a bracket is missing")) };
        match (text.as_bytes().first(), is_object) {
            (Some(b','), true) => self.state = State::Key,
            (Some(b','), false) => self.state = State::Value { may_end: false },
            (Some(b'}'), true) | (Some(b']'), false) => self.pop(out),
            _ => return Err(Broken::at(0, "expected a comma or a closing bracket")),
        }
        Ok(1)
    }
}

impl Syntax for UnquotedReader {
    fn step(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let skips = !matches!(self.state, State::Text | State::Name | State::Quoted);
        let space = if skips { space(text) } else { 0 };
        if space > 0 {
            return Ok(space);
        }
        match self.state {
            State::Text => Ok(self.text(text, ended, out)),
            State::Call => match beginning(text, &[CALL], false) {
                Beginning::Undecided => Ok(0),
                Beginning::Marker(_) => {
                    self.state = State::Name;
                    Ok(CALL.len())
                }
                Beginning::Other => Err(Broken::at(0, "expected call:")),
            },
            State::Name => match text.find('{') {
                Some(end) if end <= MAX_HEAD => {
                    let name = text[..end].trim();
                    if name.is_empty() || name.contains(['<', '\n', ':']) {
                        return Err(Broken::at(0, "expected the name of a function"));
                    }
                    out.begin(name.to_owned(), None);
                    self.open.clear();
                    self.push(true, out)?;
                    Ok(end + 1)
                }
                None if text.len() <= MAX_HEAD => Ok(0),
                _ => Err(Broken::at(0, "the name of a function does not end")),
            },
            State::Key => self.key(text, out),
            State::Value { may_end } => self.value(may_end, text, out),
            State::Quoted => Ok(self.quoted(text, out)),
            State::AfterValue => self.after_value(text, out),
            State::Closing => {
                self.state = State::Text;
                match beginning(text, &[self.markers.close], ended) {
                    Beginning::Undecided => {
                        self.state = State::Closing;
                        Ok(0)
                    }
                    Beginning::Marker(_) => {
                        out.close();
                        Ok(self.markers.close.len())
                    }
                    Beginning::Other if ended && self.markers.close.starts_with(text) => Ok(text.len()),
                    Beginning::Other => {
                        out.close();
                        Ok(self.text(text, ended, out))
                    }
                }
            }
        }
    }

    fn finish(&mut self, _end: End, out: &mut Output) {
        if matches!(self.state, State::Closing) {
            out.close();
        }
    }

    fn reset(&mut self) {
        self.searched = 0;
        self.state = State::Text;
    }
}
