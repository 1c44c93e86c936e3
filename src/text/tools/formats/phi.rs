//! Phi-4-mini: `<|tool_call|>[{"name": …, "arguments": {…}}]<|/tool_call|>`, or `functools[…]` with the same array. Granite writes
//! `<|tool_call|>[…]` and no end marker.
//!
//! Sources: https://huggingface.co/microsoft/Phi-4-mini-instruct (model card and chat template), Granite's chat template.

use super::super::blocks::{Block, BlockReader, Content};
use super::super::format::{Calls, Form, ToolFormat};
use super::hermes::{CALL, HERMES};

const BLOCKS: [Block; 2] = [
    Block::json("<|tool_call|>", Some("<|/tool_call|>")),
    Block { open: "functools[", kept: 1, close: None, content: Content::Json, is_guess: false },
];

pub(super) const PHI: ToolFormat = ToolFormat {
    name: "phi",
    signs: &[&["<|tool_call|>"], &["functools"], &["<|tool|>"]],
    needs_tools_in_template: true,
    markers: &["<|tool_call|>", "<|/tool_call|>", "functools["],
    syntax: || Box::new(BlockReader::new(&BLOCKS)),
    forms: &[
        Form {
            word: "functools",
            trigger: "functools[",
            after_trigger: "",
            calls: Calls::InOneBlock { separator: ", ", close: "]" },
            call: CALL,
        },
        Form {
            word: "",
            trigger: "<|tool_call|>",
            after_trigger: "[",
            calls: Calls::InOneBlock { separator: ", ", close: "]<|/tool_call|>" },
            call: CALL,
        },
    ],
    ..HERMES
};
