//! GPT-OSS (Harmony): messages with a channel. `<|channel|>analysis<|message|>…<|end|>` is reasoning, `<|channel|>final<|message|>…` is the
//! answer, and `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>` is a call. Commentary without a recipient
//! is also text for the user. Each message after the first begins with `<|start|>assistant`.
//!
//! Source: https://cookbook.openai.com/articles/openai-harmony

use super::call_json::ArgumentsReader;
use super::markers::{Beginning, Found, Near, beginning, find, find_near, space};
use super::output::{Broken, End, Output, Syntax};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const MESSAGE_END: &str = "<|end|>";
/// What ends a message's text. The last two begin the next message.
const ENDS: [&str; 5] = [MESSAGE_END, "<|call|>", "<|return|>", START, CHANNEL];
/// The beginnings of a message. A recipient may come before the channel.
const BEGINNINGS: [&str; 4] = [START, CHANNEL, MESSAGE, " to="];
/// A header holds a role, a channel, a recipient and a type.
const MAX_HEADER: usize = 512;

pub(super) const MARKERS: [&str; 7] = [START, CHANNEL, MESSAGE, MESSAGE_END, "<|constrain|>", "<|call|>", "<|return|>"];

enum State {
    /// A message begins here.
    Start,
    Header,
    Reasoning,
    Content,
    Call(ArgumentsReader),
    /// After the arguments of a call.
    CallEnd,
}

pub(super) struct ChannelReader {
    state: State,
    /// Whether reasoning stays in the content, with its markers.
    keeps_reasoning: bool,
    /// A separator must come between this reasoning and an earlier message's.
    paragraph: bool,
    /// White space at the end of the reasoning.
    space: String,
}

impl ChannelReader {
    pub fn new(keeps_reasoning: bool) -> Self {
        Self { state: State::Start, keeps_reasoning, paragraph: false, space: String::new() }
    }

    fn header(&mut self, header: &str, out: &mut Output) -> Result<(), Broken> {
        let channel = header.split_once(CHANNEL).map_or("", |(_, rest)| rest);
        let channel = channel.split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or("");
        let recipient = header.split_once(" to=").map(|(_, rest)| rest);
        let recipient = recipient.and_then(|rest| rest.split(|c: char| c.is_whitespace() || c == '<').next());
        let function = recipient.and_then(|name| match name.strip_prefix("functions.") {
            Some(name) => Some(name),
            None => out.tools.get(name).map(|_| name),
        });
        self.state = match (function, recipient, channel) {
            (Some(name), _, _) if !name.is_empty() && !out.tools.is_empty() => {
                out.open();
                out.begin(name.to_owned(), None);
                State::Call(ArgumentsReader::new())
            }
            (None, Some(_), _) | (Some(_), ..) => return Err(Broken::at(0, "the request has no such function")),
            (None, _, "analysis") => {
                if self.keeps_reasoning {
                    out.text(&format!("{CHANNEL}analysis{MESSAGE}"));
                }
                self.space.clear();
                State::Reasoning
            }
            _ => State::Content,
        };
        Ok(())
    }

    fn say(&mut self, text: &str, out: &mut Output) {
        match self.state {
            State::Reasoning if !self.keeps_reasoning => {
                let kept = text.trim_end();
                if kept.is_empty() {
                    self.space.push_str(text);
                    return;
                }
                let before = std::mem::take(&mut self.space);
                if std::mem::take(&mut self.paragraph) {
                    out.reasoning("\n\n");
                }
                out.reasoning(&before);
                out.reasoning(kept);
                self.space.push_str(&text[kept.len()..]);
            }
            _ => out.text(text),
        }
    }
}

impl Syntax for ChannelReader {
    fn step(&mut self, text: &str, ended: bool, out: &mut Output) -> Result<usize, Broken> {
        match &mut self.state {
            State::Start => match beginning(text, &BEGINNINGS, ended) {
                Beginning::Undecided => Ok(0),
                // Held back until it is known what it belongs to.
                Beginning::Marker(_) => {
                    out.open();
                    self.state = State::Header;
                    self.step(text, ended, out)
                }
                Beginning::Other => {
                    self.state = State::Content;
                    self.step(text, ended, out)
                }
            },
            State::Header => match find_near(text, &[MESSAGE], MAX_HEADER) {
                Near::Marker { start, .. } => {
                    out.close();
                    let header = text[..start].to_owned();
                    match self.header(&header, out) {
                        Ok(()) => Ok(start + MESSAGE.len()),
                        Err(Broken { reason, .. }) => Err(Broken::at(start + MESSAGE.len(), reason)),
                    }
                }
                Near::Undecided => Ok(0),
                Near::TooFar => Err(Broken::at(text.find('>').map_or(1, |at| at + 1), "a header does not end")),
            },
            State::Reasoning | State::Content => match find(text, &ENDS, ended) {
                Found::Marker { start: 0, marker } => {
                    if matches!(self.state, State::Reasoning) {
                        self.paragraph = true;
                        if self.keeps_reasoning {
                            out.text(MESSAGE_END);
                        }
                    }
                    self.state = State::Start;
                    // The last two are part of the next header.
                    if marker < 3 { Ok(ENDS[marker].len()) } else { self.step(text, ended, out) }
                }
                Found::Marker { start, .. } | Found::NoneBefore(start) => {
                    self.say(&text[..start], out);
                    Ok(start)
                }
            },
            State::Call(reader) => {
                let (used, done) = reader.take(text, out)?;
                if done {
                    out.end();
                    self.state = State::CallEnd;
                }
                Ok(used)
            }
            State::CallEnd => {
                let space = space(text);
                if space > 0 {
                    return Ok(space);
                }
                match beginning(text, &ENDS, ended) {
                    Beginning::Undecided => Ok(0),
                    Beginning::Marker(marker) => {
                        out.close();
                        self.state = State::Start;
                        if marker < 3 { Ok(ENDS[marker].len()) } else { self.step(text, ended, out) }
                    }
                    Beginning::Other => {
                        out.close();
                        self.state = State::Content;
                        self.step(text, ended, out)
                    }
                }
            }
        }
    }

    fn finish(&mut self, _end: End, out: &mut Output) {
        if matches!(self.state, State::CallEnd) {
            out.close();
        }
    }

    fn reset(&mut self) {
        self.state = State::Content;
    }

    fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning)
    }
}
