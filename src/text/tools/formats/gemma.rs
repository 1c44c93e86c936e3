//! Gemma 3: the prompt's text describes the functions. Calls are in a fence, ```` ```tool_code ```` as Python or ```` ```json ```` as JSON,
//! or are the whole answer.
//!
//! Source: https://ai.google.dev/gemma/docs/capabilities/function-calling

use super::super::blocks::{Block, BlockReader, Content};
use super::super::format::ToolFormat;
use super::hermes::{self, HERMES};

const BLOCKS: [Block; 3] = [
    // The form that our own description asks for, which replaces the template's.
    hermes::BLOCK,
    Block { open: "```tool_code", kept: 0, close: Some("```"), content: Content::JsonOrPython, is_guess: false },
    Block { open: "```json", kept: 0, close: Some("```"), content: Content::Json, is_guess: true },
];

pub(super) const GEMMA: ToolFormat = ToolFormat {
    name: "gemma",
    signs: &[&["<start_of_turn>"]],
    syntax: || Box::new(BlockReader::new(&BLOCKS).or_unmarked()),
    ..HERMES
};
