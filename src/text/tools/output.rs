//! The output of the parsers of tool calls, and the loop that feeds them. Text comes in pieces of any length, and parts of an answer go
//! out. All parts together are the same, whatever the pieces.
//!
//! Invariant: no text is lost. The text of a call is kept until the call is complete. If the call is broken, its text becomes content.

use std::rc::Rc;

use super::definition::Tools;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The next piece of the reasoning.
    Reasoning(String),
    /// The next piece of the answer's text.
    Content(String),
    /// A call begins.
    Call {
        /// The function's name.
        name: String,
        /// `None` if the family writes no ids.
        id: Option<String>,
    },
    /// The next piece of the arguments, JSON.
    Arguments(String),
    /// The call is complete.
    CallEnd,
    /// The text looked like a call but is not one. It follows as content.
    Malformed {
        /// The text as the model wrote it.
        text: String,
        /// Why it is not a call, for people.
        reason: String,
        /// Whether `Call` was returned for it before.
        begun: bool,
    },
}

/// How the text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Complete,
    /// The token limit, a stop string or the caller cut it off.
    Cut,
}

/// Why a call is broken.
pub(in crate::text) struct Broken {
    /// How many bytes of the text were read.
    pub used: usize,
    pub reason: String,
}

impl Broken {
    pub fn at(used: usize, reason: impl Into<String>) -> Self {
        Self { used, reason: reason.into() }
    }
}

/// The error of a reader of calls: the bytes read, and why it stopped.
impl From<(usize, String)> for Broken {
    fn from((used, reason): (usize, String)) -> Self {
        Self::at(used, reason)
    }
}

/// The name of a function, if it is a valid name.
pub(super) fn function_name(text: &str) -> Result<&str, Broken> {
    if text.is_empty() || text.contains(['<', '\n', '{']) {
        return Err(Broken::at(0, "expected the name of a function"));
    }
    Ok(text)
}

/// How one family writes tool calls.
pub(in crate::text) trait Syntax {
    /// Reads what is certain at the beginning of `text`, which is not empty. Returns the number of bytes read; 0 asks for more text.
    /// `ended` means that the text is complete.
    fn step(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken>;
    /// Goes back to plain text after a broken call.
    fn reset(&mut self);
    /// Called when the text is over and everything certain was read. Closes calls that need no end marker.
    fn finish(&mut self, end: End, out: &mut Output);
    /// Whether the next text is reasoning.
    fn is_reasoning(&self) -> bool {
        false
    }
}

pub(in crate::text) struct Output {
    pub tools: Rc<Tools>,
    parts: Vec<Part>,
    /// White space at the end of the content so far. It is dropped if a call follows.
    space: String,
    /// The text of the current call or block.
    raw: String,
    in_block: bool,
    /// Whether the call is only a guess. A wrong guess is not an error.
    is_guess: bool,
    /// Whether a call has begun and not ended.
    in_call: bool,
    /// How many calls are complete.
    calls: usize,
    has_content: bool,
}

impl Output {
    fn new(tools: Rc<Tools>) -> Self {
        Self {
            tools,
            parts: Vec::new(),
            space: String::new(),
            raw: String::new(),
            in_block: false,
            is_guess: false,
            in_call: false,
            calls: 0,
            has_content: false,
        }
    }

    /// Text that is not part of a call.
    pub fn text(&mut self, text: &str) {
        let kept = text.trim_end();
        // White space between calls and after them is only a separator.
        let dropped = self.calls > 0 && !self.has_content;
        if kept.is_empty() {
            if !dropped {
                self.space.push_str(text);
            }
            return;
        }
        let kept = if dropped { kept.trim_start() } else { kept };
        let mut content = std::mem::take(&mut self.space);
        content.push_str(kept);
        self.space.push_str(&text[text.trim_end().len()..]);
        self.has_content = true;
        self.content(content);
    }

    fn content(&mut self, text: String) {
        match self.parts.last_mut() {
            Some(Part::Content(last)) => last.push_str(&text),
            _ => self.parts.push(Part::Content(text)),
        }
    }

    pub fn reasoning(&mut self, text: &str) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Reasoning(last)) => last.push_str(text),
            _ => self.parts.push(Part::Reasoning(text.to_owned())),
        }
    }

    /// From this step on, the text belongs to a call.
    pub fn open(&mut self) {
        (self.in_block, self.is_guess) = (true, false);
    }

    /// The same for text that may turn out not to be a call.
    pub fn guess(&mut self) {
        (self.in_block, self.is_guess) = (true, true);
    }

    /// After this step, the text no longer belongs to a call.
    pub fn close(&mut self) {
        self.in_block = false;
    }

    pub fn begin(&mut self, name: String, id: Option<String>) {
        self.space.clear();
        self.has_content = false;
        self.in_call = true;
        self.parts.push(Part::Call { name, id });
    }

    pub fn arguments(&mut self, text: &str) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Arguments(last)) => last.push_str(text),
            _ => self.parts.push(Part::Arguments(text.to_owned())),
        }
    }

    /// The current call is complete.
    pub fn end(&mut self) {
        self.in_call = false;
        self.calls += 1;
        self.parts.push(Part::CallEnd);
    }

    /// How many calls are complete.
    pub fn calls(&self) -> usize {
        self.calls
    }

    fn broken(&mut self, reason: String) {
        let text = std::mem::take(&mut self.raw);
        if self.in_call || !self.is_guess {
            self.parts.push(Part::Malformed { text: text.clone(), reason, begun: self.in_call });
        }
        (self.in_block, self.in_call) = (false, false);
        self.text(&text);
    }
}

/// Feeds a syntax with text.
pub(in crate::text) struct Feed {
    syntax: Box<dyn Syntax>,
    buffer: String,
    out: Output,
}

impl Feed {
    pub fn new(syntax: Box<dyn Syntax>, tools: Rc<Tools>) -> Self {
        Self { syntax, buffer: String::new(), out: Output::new(tools) }
    }

    pub fn is_reasoning(&self) -> bool {
        self.syntax.is_reasoning()
    }

    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.buffer.push_str(text);
        self.run(false);
        std::mem::take(&mut self.out.parts)
    }

    pub fn finish(&mut self, end: End) -> Vec<Part> {
        self.run(true);
        let rest = std::mem::take(&mut self.buffer);
        if self.out.in_block {
            self.out.raw.push_str(&rest);
        } else {
            self.out.text(&rest);
        }
        self.syntax.finish(end, &mut self.out);
        let out = &mut self.out;
        match (out.in_block, end) {
            // The call's text so far was already returned.
            (true, End::Cut) if out.in_call => {}
            (true, _) if out.raw.trim().is_empty() => {}
            (true, End::Complete) => out.broken("the text ended within the call".to_owned()),
            // A call that is cut off before its name is not an error.
            (true, End::Cut) => {
                out.is_guess = true;
                out.broken("the text was cut off".to_owned());
            }
            (false, _) => {}
        }
        let space = std::mem::take(&mut out.space);
        if !space.is_empty() && out.calls == 0 {
            out.content(space);
        }
        std::mem::take(&mut out.parts)
    }

    fn run(&mut self, ended: bool) {
        let mut done = 0;
        while done < self.buffer.len() {
            let rest = &self.buffer[done..];
            let (was_in_block, calls) = (self.out.in_block, self.out.calls);
            let (used, broken) = match self.syntax.step(rest, ended, &mut self.out) {
                Ok(0) => break,
                Ok(used) => (used, None),
                Err(Broken { used, reason }) => (used, Some(reason)),
            };
            if was_in_block || self.out.in_block || broken.is_some() {
                self.out.raw.push_str(&rest[..used]);
            }
            done += used;
            if let Some(reason) = broken {
                self.out.broken(reason);
                self.syntax.reset();
            } else if !self.out.in_block || self.out.calls > calls {
                self.out.raw.clear();
            }
        }
        self.buffer.drain(..done);
    }
}
