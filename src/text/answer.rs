//! From a model's text to the parts of its answer: reasoning, content and tool calls. All parts together are the same, whatever pieces the
//! text comes in.

use std::rc::Rc;

use super::reasoning::{Beginning, ReasoningMarkers, ReasoningSplitter};
use super::tools::{End, Feed, Part, ToolFormat, Tools, channel_parser};

/// How to read a model's answers.
#[derive(Clone, Debug, Default)]
pub struct AnswerSettings {
    /// Functions that may be called, and how the model writes calls; with `None` a call is plain text.
    pub tools: Option<(&'static ToolFormat, Rc<Tools>)>,
    /// Markers of the reasoning, and how the answer begins; with `None` the reasoning stays in the content.
    pub reasoning: Option<(ReasoningMarkers, Beginning)>,
    /// For a model that writes in channels: the part of the first message that is in the prompt, and whether reasoning stays in the
    /// content.
    pub channels: Option<(String, bool)>,
}

/// Reads one answer.
pub struct Answer {
    reasoning: Option<ReasoningSplitter>,
    parser: Option<Feed>,
}

impl Answer {
    /// A reader at the beginning of an answer.
    pub fn new(settings: AnswerSettings) -> Self {
        let parser = match (settings.channels, settings.tools) {
            (Some((prompt, keeps_reasoning)), tools) => {
                let tools = tools.map(|(_, tools)| tools).unwrap_or_default();
                let mut parser = channel_parser(tools, keeps_reasoning);
                // The prompt opens the channel, so its text is dropped.
                parser.push(&prompt);
                Some(parser)
            }
            (None, Some((format, tools))) => Some(format.parser(tools)),
            (None, None) => None,
        };
        let reasoning = settings.reasoning.map(|(markers, beginning)| ReasoningSplitter::new(markers, beginning));
        Self { reasoning, parser }
    }

    /// Whether what follows is reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.reasoning.as_ref().is_some_and(ReasoningSplitter::is_inside)
            || self.parser.as_ref().is_some_and(Feed::is_reasoning)
    }

    /// The parts that become certain with the next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        let Some(reasoning) = &mut self.reasoning else { return self.parse(text) };
        let split = reasoning.push(text);
        let mut parts = reasoning_part(split.reasoning);
        parts.extend(self.parse(&split.answer));
        parts
    }

    /// The rest, after the end of the text.
    pub fn finish(&mut self, end: End) -> Vec<Part> {
        let split = self.reasoning.as_mut().map(ReasoningSplitter::finish).unwrap_or_default();
        let mut parts = reasoning_part(split.reasoning);
        parts.extend(self.parse(&split.answer));
        parts.extend(self.parser.as_mut().map(|parser| parser.finish(end)).unwrap_or_default());
        parts
    }

    fn parse(&mut self, text: &str) -> Vec<Part> {
        match &mut self.parser {
            _ if text.is_empty() => Vec::new(),
            Some(parser) => parser.push(text),
            None => vec![Part::Content(text.to_owned())],
        }
    }
}

fn reasoning_part(text: String) -> Vec<Part> {
    if text.is_empty() { Vec::new() } else { vec![Part::Reasoning(text)] }
}
