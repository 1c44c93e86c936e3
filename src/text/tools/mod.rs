//! Tool calls in a model's text: its format, found by the markers in the chat template, and parsers for the stream of text.
//!
//! A format is a constant in `formats` (its type is in `format`). One of five state machines reads its calls: `blocks`, `sections`, `tags`,
//! `unquoted` or `channels`. All write to `output`, which keeps undecided text. Must not know tokens or requests.

mod arguments;
mod blocks;
mod call_json;
mod call_python;
mod channels;
mod definition;
mod format;
mod formats;
mod grammar;
mod instructions;
mod json;
mod lark;
pub(super) mod markers;
mod output;
mod regex;
mod schema;
mod sections;
mod string_formats;
mod string_terms;
mod tags;
mod typed;
mod unquoted;

use std::rc::Rc;

use self::channels::ChannelReader;

pub use self::definition::{Tool, ToolChoice, Tools};
pub use self::format::{Channels, ToolFormat};
pub use self::grammar::ToolGrammar;
pub(crate) use self::instructions::{as_text, instructions};
pub(super) use self::output::Feed;
pub use self::output::{End, Part};

/// A parser for one answer in channels. With `keeps_reasoning` the reasoning stays in the content, with its markers.
pub(super) fn channel_parser(tools: Rc<Tools>, keeps_reasoning: bool) -> Feed {
    Feed::new(Box::new(ChannelReader::new(keeps_reasoning)), tools)
}

/// Whether a template uses the variable `tools`.
pub fn template_has_tools(source: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    source.match_indices("tools").any(|(at, word)| {
        let after = &source[at + word.len()..];
        !source[..at].ends_with(is_word) && !after.starts_with(is_word)
    })
}
