//! Separates a model's reasoning from its answer: `<think>…</think>` and the like. The markers are at the beginning of the answer, or the
//! template has already opened them.
//!
//! Must not know tokens. White space around the reasoning is dropped, as vLLM's and llama.cpp's clients expect.

use super::tools::markers::{Found, find};

/// The markers that a family of models uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningMarkers {
    /// What the reasoning begins with, such as `<think>`.
    pub open: &'static str,
    /// What it ends with, such as `</think>`.
    pub close: &'static str,
}

/// Qwen, DeepSeek and most others; then Seed OSS, Magistral, Cohere, Gemma 4.
const KNOWN: [ReasoningMarkers; 5] = [
    ReasoningMarkers { open: "<think>", close: "</think>" },
    ReasoningMarkers { open: "<seed:think>", close: "</seed:think>" },
    ReasoningMarkers { open: "[THINK]", close: "[/THINK]" },
    ReasoningMarkers { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
    ReasoningMarkers { open: "<|channel>thought", close: "<channel|>" },
];

impl ReasoningMarkers {
    /// The markers that a chat template contains.
    pub fn of_template(source: &str) -> Option<Self> {
        KNOWN.into_iter().find(|markers| source.contains(markers.open) || source.contains(markers.close))
    }

    /// Texts that may be control tokens, but that the splitter must see.
    pub fn tokens(self) -> [&'static str; 2] {
        // Gemma 4 opens a channel and names it after that.
        let open = if self.open == "<|channel>thought" { "<|channel>" } else { self.open };
        [open, self.close]
    }

    /// How an answer begins after a prompt. `continued` is the part of the answer that is already in the prompt.
    pub fn beginning(self, prompt: &str, continued: Option<&str>) -> Beginning {
        let prompt = prompt.trim_end();
        match continued {
            _ if prompt.ends_with(self.open) => Beginning::Inside,
            Some(text) => match (text.rfind(self.open), text.rfind(self.close)) {
                (Some(open), close) if close.is_none_or(|close| close < open) => Beginning::Inside,
                _ if text.trim().is_empty() && !prompt.ends_with(self.close) => Beginning::Undecided,
                _ => Beginning::Outside,
            },
            None if prompt.ends_with(self.close) => Beginning::Outside,
            None => Beginning::Undecided,
        }
    }
}

/// Where an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// The prompt has opened the reasoning.
    Inside,
    /// There is no reasoning, or it is over.
    Outside,
    /// The model decides whether it reasons.
    Undecided,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Undecided,
    /// Whether any of it was returned.
    Inside {
        begun: bool,
    },
    /// After the reasoning and before the answer's first word.
    After,
    Outside,
}

/// Cuts a streamed answer in two.
#[derive(Clone, Debug)]
pub(super) struct ReasoningSplitter {
    markers: ReasoningMarkers,
    state: State,
    /// White space before the buffer. It is returned with the text that follows, or dropped.
    space: String,
    buffer: String,
}

/// The text that became certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub reasoning: String,
    pub answer: String,
}

impl ReasoningSplitter {
    pub fn new(markers: ReasoningMarkers, beginning: Beginning) -> Self {
        let state = match beginning {
            Beginning::Inside => State::Inside { begun: false },
            Beginning::Outside => State::Outside,
            Beginning::Undecided => State::Undecided,
        };
        Self { markers, state, space: String::new(), buffer: String::new() }
    }

    /// Whether the next text is reasoning, as far as is known.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Inside { .. })
    }

    pub fn push(&mut self, text: &str) -> Split {
        self.buffer.push_str(text);
        self.advance(false)
    }

    /// The end of the text.
    pub fn finish(&mut self) -> Split {
        self.advance(true)
    }

    fn advance(&mut self, ended: bool) -> Split {
        let mut split = Split::default();
        let ReasoningMarkers { open, close } = self.markers;
        if self.state == State::Undecided {
            self.set_space_apart();
            if let Some(after) = self.buffer.strip_prefix(open) {
                self.buffer = after.to_owned();
                self.space.clear();
                self.state = State::Inside { begun: false };
            } else if ended || !open.starts_with(&self.buffer) {
                self.state = State::Outside;
            }
        }
        if let State::Inside { begun } = &mut self.state {
            let (certain, used) = match find(&self.buffer, &[close], ended) {
                Found::Marker { start, .. } => (start, start + close.len()),
                Found::NoneBefore(certain) => (certain, certain),
            };
            let text = &self.buffer[..certain];
            let text = if *begun { text } else { text.trim_start() };
            let kept = text.trim_end();
            if !kept.is_empty() {
                *begun = true;
                split.reasoning = std::mem::take(&mut self.space) + kept;
            }
            self.space.push_str(&text[kept.len()..]);
            self.buffer.drain(..used);
            if used > certain {
                self.state = State::After;
            }
        }
        if self.state == State::After {
            self.set_space_apart();
            self.space.clear();
            if !self.buffer.is_empty() {
                self.state = State::Outside;
            }
        }
        if self.state == State::Outside {
            split.answer = std::mem::take(&mut self.space) + &std::mem::take(&mut self.buffer);
        }
        split
    }

    /// Takes white space off the beginning of the buffer.
    fn set_space_apart(&mut self) {
        let length = self.buffer.len() - self.buffer.trim_start().len();
        self.space.extend(self.buffer.drain(..length));
    }
}
