//! Models without their own format. Our description of the functions (`instructions`) asks for Hermes' calls. Other known forms are read
//! too: JSON in a fence, or JSON alone.

use super::super::blocks::{Block, BlockReader, Content};
use super::super::format::ToolFormat;
use super::hermes::{self, HERMES};

const BLOCKS: [Block; 3] = [
    hermes::BLOCK,
    Block { open: "```tool_call", kept: 0, close: Some("```"), content: Content::Json, is_guess: true },
    Block { open: "```json", kept: 0, close: Some("```"), content: Content::Json, is_guess: true },
];

pub(super) const GENERIC: ToolFormat = ToolFormat {
    name: "generic",
    // For templates that match no other format.
    signs: &[&[]],
    syntax: || Box::new(BlockReader::new(&BLOCKS).or_unmarked()),
    ..HERMES
};
