//! The data of a format of tool calls; each family's file fills it in. Detection by template, parser, grammar and tests use these fields
//! and never the name.

use std::fmt;
use std::rc::Rc;

use super::definition::Tools;
use super::output::{Feed, Syntax};
use super::tags::Tags;
use super::unquoted::Quoting;

/// How a family of models writes tool calls.
pub struct ToolFormat {
    /// Its name in tests and messages; no two formats share one.
    pub name: &'static str,
    /// How to recognise the family's templates: they contain all words of one of these lists.
    pub(super) signs: &'static [&'static [&'static str]],
    /// If a template does not list the functions, our own description does. The model then writes the calls that it asks for (`Generic`)
    /// instead of this format.
    pub needs_tools_in_template: bool,
    /// Texts that may be control tokens, but that the parser must see.
    pub markers: &'static [&'static str],
    /// Tokens that end an answer with calls, in addition to those of the vocabulary.
    pub end_tokens: &'static [&'static str],
    /// Ids of calls in the family's templates: a prefix, and the number of letters and digits after it.
    pub call_id: (&'static str, usize),
    /// A parser for one answer.
    pub(super) syntax: fn() -> Box<dyn Syntax>,
    /// The forms of calls, for grammars: the first one whose word is in the template.
    pub(super) forms: &'static [Form],
    /// Set if the model writes everything in channels.
    pub channels: Option<Channels>,
}

/// An answer in channels: reasoning, calls and content are messages with a header.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    /// The end of a prompt, before the first header.
    pub prompt_end: &'static str,
    /// The texts from reasoning to the answer, token by token.
    pub reasoning_end: &'static [&'static str],
}

/// One way in which a family writes calls.
pub(super) struct Form {
    /// A word that is only in templates with this form; empty for the last form.
    pub word: &'static str,
    /// The text that opens a call, or all calls; empty if the answer itself is a call.
    pub trigger: &'static str,
    pub after_trigger: &'static str,
    pub calls: Calls,
    pub call: Call,
}

/// How several calls are written in an answer.
pub(super) enum Calls {
    InOneBlock { separator: &'static str, close: &'static str },
    EachInABlock { separator: &'static str, close: &'static str },
}

/// One call, without the text around all calls.
pub(super) enum Call {
    /// Arguments are one JSON object.
    Json(&'static [Piece]),
    Tags(&'static Tags),
    Python,
    Unquoted(&'static Quoting),
}

/// A piece of a call with arguments in JSON.
pub(super) enum Piece {
    Text(&'static str),
    /// The function's name.
    Name,
    /// Any whole number.
    Number,
    Arguments,
}

impl ToolFormat {
    /// The form of a template.
    pub(super) fn form(&self, template: &str) -> Option<&'static Form> {
        self.forms.iter().find(|form| template.contains(form.word))
    }

    /// For each form, the word that selects it in a template.
    pub fn form_words(&self) -> Vec<&'static str> {
        if self.forms.is_empty() { vec![""] } else { self.forms.iter().map(|form| form.word).collect() }
    }

    /// Whether texts in the arguments have no JSON quotes.
    pub fn has_bare_texts(&self) -> bool {
        self.forms.iter().any(|form| matches!(form.call, Call::Tags(_) | Call::Unquoted(_)))
    }

    /// A parser for one answer.
    pub(in crate::text) fn parser(&self, tools: Rc<Tools>) -> Feed {
        Feed::new((self.syntax)(), tools)
    }
}

impl PartialEq for ToolFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for ToolFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
