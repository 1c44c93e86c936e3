//! A sequence of calls between markers, each with its name before its arguments: DeepSeek, Kimi and Mistral. One state machine for all; the
//! markers and the form of the name are data.

use std::collections::HashSet;

use super::call_json::{ArgumentsReader, CallsReader, Trust};
use super::definition::{MAX_HEAD, is_name_character};
use super::markers::{Beginning, Found, Near, beginning, find, find_near, space};
use super::output::{Broken, End, Output, Syntax, function_name};

/// A family's markers.
pub(super) struct Sections {
    /// The text that opens all calls. It may be missing.
    pub opens: &'static [&'static str],
    /// The text that opens one call.
    pub call: &'static str,
    pub head: Head,
    /// Texts that may come before the arguments.
    pub fences: &'static [&'static str],
    /// Texts that may come after the arguments. The first one ends the call; it may be missing.
    pub ends: &'static [&'static str],
    /// The text that closes all calls; it may be missing.
    pub close: Option<&'static str>,
}

/// The text before the arguments of a call.
#[derive(Clone, Copy)]
pub(super) enum Head {
    /// The call's id, which names the function: `functions.name:0`.
    Id { end: &'static str },
    /// The name; or the word `before_line`, after which the name is on its own line.
    Name { end: &'static str, before_line: &'static str },
    /// The name, then perhaps a marker and an id, then a marker that may be missing; or calls as JSON.
    Word { id: &'static str, end: &'static str },
}

enum State {
    Text,
    /// A call, or the end of all calls, is expected.
    Between,
    /// After a call's opening.
    Head,
    /// The name, on its own line.
    Line,
    /// After a name: an id or the arguments.
    Named(String),
    Id(String),
    /// An optional fence before the arguments.
    Fence,
    Arguments(ArgumentsReader),
    /// Calls as JSON.
    Json(CallsReader),
    /// After the arguments.
    AfterArguments,
}

pub(super) struct SectionReader {
    sections: &'static Sections,
    state: State,
    /// The ids of the calls so far.
    ids: HashSet<String>,
}

impl SectionReader {
    pub fn new(sections: &'static Sections) -> Self {
        Self { sections, state: State::Text, ids: HashSet::new() }
    }

    fn text(&mut self, text: &str, ended: bool, out: &mut Output) -> usize {
        let Sections { opens, call, .. } = self.sections;
        let markers = [&[*call], *opens].concat();
        match find(text, &markers, ended) {
            Found::Marker { start: 0, marker } => {
                out.open();
                self.state = if marker == 0 { State::Head } else { State::Between };
                markers[marker].len()
            }
            Found::Marker { start, .. } | Found::NoneBefore(start) => {
                out.text(&text[..start]);
                start
            }
        }
    }

    fn between(&mut self, text: &str, ended: bool, out: &mut Output) -> usize {
        let Sections { call, close, .. } = self.sections;
        let markers: Vec<&str> = [*call].into_iter().chain(*close).collect();
        match beginning(text, &markers, ended) {
            Beginning::Undecided => 0,
            Beginning::Marker(0) => {
                self.state = State::Head;
                call.len()
            }
            Beginning::Marker(marker) => {
                out.close();
                self.state = State::Text;
                markers[marker].len()
            }
            Beginning::Other if ended && close.is_some_and(|close| close.starts_with(text)) => text.len(),
            Beginning::Other => {
                out.close();
                self.state = State::Text;
                self.text(text, ended, out)
            }
        }
    }

    fn head(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let end = match self.sections.head {
            Head::Word { .. } if text.starts_with(['[', '{']) => {
                self.state = State::Json(CallsReader::new(Trust::Marked));
                return self.step(text, ended, out);
            }
            Head::Word { .. } => {
                let Some(name) = word(text)? else { return Ok(0) };
                self.state = State::Named(name.to_owned());
                return Ok(name.len());
            }
            Head::Id { end } | Head::Name { end, .. } => end,
        };
        let start = match find_near(text, &[end], MAX_HEAD) {
            Near::Marker { start, .. } => start,
            Near::Undecided => return Ok(0),
            Near::TooFar => return Err(Broken::at(0, format!("expected {end} after the name of a call"))),
        };
        let head = text[..start].trim();
        match self.sections.head {
            Head::Id { .. } => self.identified(head, out)?,
            Head::Name { before_line, .. } if head == before_line => self.state = State::Line,
            _ => self.begin(head, None, out)?,
        }
        Ok(start + end.len())
    }

    /// A call by its id, such as `functions.name:0`.
    fn identified(&mut self, id: &str, out: &mut Output) -> Result<(), Broken> {
        let (name, has_number) = match id.rsplit_once(':') {
            Some((name, number)) if !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()) => (name, true),
            _ => (id, false),
        };
        // The request may have a function whose name begins like this.
        let name = match name.strip_prefix("functions.") {
            Some(rest) if out.tools.get(name).is_none() => rest,
            _ => name,
        };
        // Ids must distinguish the calls of an answer.
        let is_new = has_number && !self.ids.contains(id);
        self.begin(name, is_new.then(|| id.to_owned()), out)?;
        self.ids.extend(is_new.then(|| id.to_owned()));
        Ok(())
    }

    fn begin(&mut self, name: &str, id: Option<String>, out: &mut Output) -> Result<(), Broken> {
        out.begin(function_name(name)?.to_owned(), id);
        self.state = if self.sections.fences.is_empty() { State::arguments() } else { State::Fence };
        Ok(())
    }

    /// A name on its own line.
    fn line(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        match text.find(['\n', '`', '{']) {
            Some(length) if length <= MAX_HEAD => {
                self.begin(text[..length].trim(), None, out)?;
                Ok(length)
            }
            None if text.len() <= MAX_HEAD => Ok(0),
            _ => Err(Broken::at(0, "the name of a function does not end")),
        }
    }

    /// The text after a name that ends by itself.
    fn named(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let (State::Named(name), Head::Word { id, end }) = (&mut self.state, self.sections.head) else { return Ok(0) };
        let name = std::mem::take(name);
        match beginning(text, &[id, end, "{"], false) {
            Beginning::Undecided => {
                self.state = State::Named(name);
                Ok(0)
            }
            Beginning::Marker(0) => {
                self.state = State::Id(name);
                Ok(id.len())
            }
            // The marker is a control token, which some vocabularies hide.
            Beginning::Marker(marker) => {
                self.begin(&name, None, out)?;
                if marker == 1 { Ok(end.len()) } else { self.step(text, ended, out) }
            }
            Beginning::Other => Err(Broken::at(0, format!("expected {end} after the name of a function"))),
        }
    }

    fn id(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let (State::Id(name), Head::Word { end, .. }) = (&mut self.state, self.sections.head) else { return Ok(0) };
        match find_near(text, &[end], MAX_HEAD) {
            Near::Marker { start, .. } if start > 0 => {
                let name = std::mem::take(name);
                self.begin(&name, Some(text[..start].trim().to_owned()), out)?;
                Ok(start + end.len())
            }
            Near::Undecided => Ok(0),
            _ => Err(Broken::at(0, format!("expected {end} after the id of a call"))),
        }
    }

    fn fence(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let markers = [self.sections.fences, &["{"]].concat();
        let used = match beginning(text, &markers, false) {
            Beginning::Undecided => return Ok(0),
            Beginning::Marker(marker) if markers[marker] == "{" => 0,
            Beginning::Marker(marker) => markers[marker].len(),
            Beginning::Other => return Err(Broken::at(0, "the arguments are not an object")),
        };
        self.state = State::arguments();
        if used > 0 { Ok(used) } else { self.step(text, ended, out) }
    }

    fn after_arguments(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let ends = self.sections.ends;
        match beginning(text, ends, ended) {
            Beginning::Undecided => Ok(0),
            Beginning::Marker(marker) => {
                if marker == 0 {
                    self.state = State::Between;
                }
                Ok(ends[marker].len())
            }
            Beginning::Other if ended && ends.iter().any(|end| end.starts_with(text)) => Ok(text.len()),
            Beginning::Other => {
                self.state = State::Between;
                self.step(text, ended, out)
            }
        }
    }
}

impl State {
    fn arguments() -> Self {
        Self::Arguments(ArgumentsReader::new())
    }
}

/// A name, which ends at a bracket, a brace or a space; `None` if more text is needed.
fn word(text: &str) -> Result<Option<&str>, Broken> {
    match text.find(|c| !is_name_character(c)) {
        Some(0) => Err(Broken::at(0, "expected the name of a function")),
        Some(end) if end <= MAX_HEAD => Ok(Some(&text[..end])),
        None if text.len() <= MAX_HEAD => Ok(None),
        _ => Err(Broken::at(0, "the name of a function does not end")),
    }
}

impl Syntax for SectionReader {
    fn step(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let is_content = matches!(self.state, State::Text | State::Arguments(_) | State::Json(_));
        let space = if is_content { 0 } else { space(text) };
        if space > 0 {
            return Ok(space);
        }
        match &mut self.state {
            State::Text => Ok(self.text(text, ended, out)),
            State::Between => Ok(self.between(text, ended, out)),
            State::Head => self.head(text, ended, out),
            State::Line => self.line(text, out),
            State::Named(_) => self.named(text, ended, out),
            State::Id(_) => self.id(text, out),
            State::Fence => self.fence(text, ended, out),
            State::Arguments(reader) => {
                let (used, done) = reader.take(text, out)?;
                if done {
                    out.end();
                    self.state = State::AfterArguments;
                }
                Ok(used)
            }
            State::Json(reader) => {
                let (used, done) = reader.take(text, out)?;
                if done {
                    self.state = State::AfterArguments;
                }
                Ok(used)
            }
            State::AfterArguments => self.after_arguments(text, ended, out),
        }
    }

    fn finish(&mut self, _end: End, out: &mut Output) {
        if matches!(self.state, State::Between | State::AfterArguments) {
            out.close();
        }
    }

    fn reset(&mut self) {
        self.state = State::Text;
    }
}
