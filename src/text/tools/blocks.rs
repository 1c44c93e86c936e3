//! Calls between markers, as JSON or as Python: most families write them. One state machine, with the markers as data. Without markers, an
//! answer is a call if it begins like one.

use serde_json::Value;

use super::call_json::{CallsReader, Trust};
use super::call_python::PythonReader;
use super::definition::{MAX_HEAD, is_name_character};
use super::markers::{Beginning, Found, beginning, find, space};
use super::output::{Broken, End, Output, Syntax};

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Json,
    /// JSON, or calls in Python's syntax.
    JsonOrPython,
    /// The same, or code if the request has a function that runs code.
    JsonPythonOrCode,
}

/// Functions that run code, with the argument `code`.
const CODE_FUNCTIONS: [&str; 3] = ["python", "code_interpreter", "ipython"];

/// The markers around calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub open: &'static str,
    /// How many bytes at the end of `open` already belong to the calls.
    pub kept: usize,
    /// `None` if the calls end by themselves.
    pub close: Option<&'static str>,
    pub content: Content,
    /// The same markers may mean something else.
    pub is_guess: bool,
}

impl Block {
    /// JSON between two markers that mean nothing else.
    pub const fn json(open: &'static str, close: Option<&'static str>) -> Self {
        Self { open, kept: 0, close, content: Content::Json, is_guess: false }
    }

    fn trust(&self) -> Trust {
        if self.is_guess { Trust::Unmarked } else { Trust::Marked }
    }
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// An answer that begins with a call, with no marker before it.
const UNMARKED: Block = Block { open: "", kept: 0, close: None, content: Content::JsonOrPython, is_guess: true };

#[derive(Clone, Debug)]
enum State {
    Text,
    /// A call is expected.
    Call(Block),
    /// After a bracket: a list in JSON or Python.
    List(Block),
    Json(Block, CallsReader),
    Python(Block, PythonReader),
    Code,
    After(Block),
}

pub(super) struct BlockReader {
    blocks: &'static [Block],
    opens: Vec<&'static str>,
    state: State,
    unmarked: bool,
    /// Only white space has been taken so far.
    at_beginning: bool,
}

impl BlockReader {
    pub fn new(blocks: &'static [Block]) -> Self {
        let opens = blocks.iter().map(|block| block.open).collect();
        Self { blocks, opens, state: State::Text, unmarked: false, at_beginning: true }
    }

    /// The same, and an answer that is only calls needs no markers.
    pub fn or_unmarked(self) -> Self {
        Self { unmarked: true, ..self }
    }

    fn text(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        if self.at_beginning {
            let space = space(text);
            if space > 0 {
                out.text(&text[..space]);
                return Ok(space);
            }
            self.at_beginning = false;
            if self.unmarked && text.starts_with(['{', '[']) {
                out.guess();
                self.state = State::Call(UNMARKED);
                return self.call(UNMARKED, text, out);
            }
        }
        match find(text, &self.opens, ended) {
            Found::NoneBefore(certain) => {
                out.text(&text[..certain]);
                Ok(certain)
            }
            Found::Marker { start: 0, marker } => {
                let block = self.blocks[marker];
                if block.is_guess {
                    out.guess()
                } else {
                    out.open()
                }
                self.state = State::Call(block);
                Ok(block.open.len() - block.kept)
            }
            Found::Marker { start, .. } => {
                out.text(&text[..start]);
                Ok(start)
            }
        }
    }

    /// Decides the syntax of a call from its beginning.
    fn call(&mut self, block: Block, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let space = space(text);
        if space > 0 {
            return Ok(space);
        }
        let has_python = block.content != Content::Json;
        if text.starts_with('[') && has_python {
            self.state = State::List(block);
            return Ok(1);
        }
        if text.starts_with(['{', '[']) {
            self.state = State::Json(block, CallsReader::new(block.trust()));
            return self.json(text, out);
        }
        if has_python && text.starts_with(is_name_start) {
            let end = text.find(|c| !is_name_character(c));
            let (None, true) = (end, text.len() < MAX_HEAD) else {
                let name = &text[..end.unwrap_or(text.len())];
                let last = name.rsplit('.').next().unwrap_or(name);
                let is_known = name.ends_with(".call") || [name, last].iter().any(|name| out.tools.get(name).is_some());
                let is_call = name.len() < MAX_HEAD && text[name.len()..].starts_with('(');
                if block.content != Content::JsonPythonOrCode || (is_call && is_known) {
                    self.state = State::Python(block, PythonReader::new(block.is_guess));
                    return self.python(text, out);
                }
                return self.code(text, out);
            };
            return Ok(0);
        }
        match block.content {
            Content::JsonPythonOrCode => self.code(text, out),
            _ => Err(Broken::at(0, "expected a call after the marker")),
        }
    }

    /// Decides the syntax of a list from the text after its bracket.
    fn list(&mut self, block: Block, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let space = space(text);
        if space > 0 {
            return Ok(space);
        }
        if text.starts_with(is_name_start) {
            let mut reader = PythonReader::new(block.is_guess);
            reader.take("[", out)?;
            self.state = State::Python(block, reader);
            return self.python(text, out);
        }
        let mut reader = CallsReader::new(block.trust());
        reader.take("[", out)?;
        self.state = State::Json(block, reader);
        self.json(text, out)
    }

    fn json(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let State::Json(block, reader) = &mut self.state else { return Ok(0) };
        let block = *block;
        let (used, done) = reader.take(text, out)?;
        if done {
            self.state = State::After(block);
        }
        Ok(used)
    }

    fn python(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        let State::Python(block, reader) = &mut self.state else { return Ok(0) };
        let block = *block;
        let (used, done) = reader.take(text, out)?;
        if done {
            self.state = State::After(block);
        }
        Ok(used)
    }

    /// All text from here on is code.
    fn code(&mut self, text: &str, out: &mut Output) -> Result<usize, Broken> {
        if !matches!(self.state, State::Code) {
            let Some(name) = CODE_FUNCTIONS.iter().find(|name| out.tools.get(name).is_some()) else {
                return Err(Broken::at(0, "code, and the request has no function that runs it"));
            };
            out.begin((*name).to_owned(), None);
            out.arguments("{\"code\": \"");
            self.state = State::Code;
        }
        let quoted = Value::from(text).to_string();
        out.arguments(&quoted[1..quoted.len() - 1]);
        Ok(text.len())
    }

    /// After a call: another call, or the end of the block.
    fn after(&mut self, block: Block, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        let space = space(text);
        if space > 0 {
            return Ok(space);
        }
        let markers: Vec<&str> = block.close.into_iter().chain(self.opens.iter().copied()).collect();
        let opens_call = |c: char| c == '{' || (block.content != Content::Json && is_name_start(c));
        match (beginning(text, &markers, ended), block.close) {
            (Beginning::Undecided, _) => return Ok(0),
            (Beginning::Marker(0), Some(close)) => {
                out.close();
                self.state = State::Text;
                return Ok(close.len());
            }
            (Beginning::Other, Some(close)) if ended && close.starts_with(text) => return Ok(text.len()),
            // Llama separates calls with semicolons, other models with line breaks.
            (Beginning::Other, _) if text.starts_with(';') => return Ok(1),
            (Beginning::Other, close) if text.starts_with('{') || (close.is_some() && text.starts_with(opens_call)) => {
                if block.is_guess {
                    out.guess();
                }
                self.state = State::Call(block);
                return self.call(block, text, out);
            }
            _ => {}
        }
        out.close();
        self.state = State::Text;
        self.text(text, ended, out)
    }
}

impl Syntax for BlockReader {
    fn step(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        match &self.state {
            State::Text => self.text(text, ended, out),
            State::Call(block) => self.call(*block, text, out),
            State::List(block) => self.list(*block, text, out),
            State::Json(..) => self.json(text, out),
            State::Python(..) => self.python(text, out),
            State::Code => self.code(text, out),
            State::After(block) => self.after(*block, text, ended, out),
        }
    }

    fn reset(&mut self) {
        self.state = State::Text;
    }

    fn finish(&mut self, end: End, out: &mut Output) {
        match self.state {
            State::Code if end == End::Complete => {
                out.arguments("\"}");
                out.end();
                out.close();
            }
            State::After(_) => out.close(),
            _ => {}
        }
    }
}
