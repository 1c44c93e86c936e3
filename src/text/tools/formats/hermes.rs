//! Calls as JSON between tags. Hermes and Qwen 2.5 and 3 write `<tool_call>{"name": …, "arguments": …}</tool_call>`. Several other families
//! write an array of such objects between their own tags.
//!
//! Sources: https://github.com/NousResearch/Hermes-Function-Calling and the chat templates of the models named.

use super::super::blocks::{Block, BlockReader};
use super::super::format::{Call, Calls, Form, Piece, ToolFormat};

pub(super) const BLOCK: Block = Block::json("<tool_call>", Some("</tool_call>"));
const JAMBA_BLOCK: Block = Block::json("<tool_calls>", Some("</tool_calls>"));
const COHERE_BLOCK: Block = Block::json("<|START_ACTION|>", Some("<|END_ACTION|>"));
const NEMOTRON_BLOCK: Block = Block::json("<TOOLCALL>", Some("</TOOLCALL>"));

/// `{"name": …, "arguments": …}`.
pub(super) const CALL: Call = Call::Json(&[
    Piece::Text("{\"name\": \""),
    Piece::Name,
    Piece::Text("\", \"arguments\": "),
    Piece::Arguments,
    Piece::Text("}"),
]);

pub(super) const HERMES: ToolFormat = ToolFormat {
    name: "hermes",
    signs: &[&["<tool_call>"]],
    needs_tools_in_template: false,
    markers: &["<tool_call>", "</tool_call>"],
    end_tokens: &[],
    call_id: ("call_", 24),
    syntax: || Box::new(BlockReader::new(&[BLOCK])),
    forms: &[Form {
        word: "",
        trigger: "<tool_call>",
        after_trigger: "\n",
        calls: Calls::EachInABlock { separator: "\n", close: "\n</tool_call>" },
        call: CALL,
    }],
    channels: None,
};

/// AI21 Jamba.
pub(super) const JAMBA: ToolFormat = ToolFormat {
    name: "jamba",
    signs: &[&["<tool_calls>"]],
    markers: &["<tool_calls>", "</tool_calls>"],
    syntax: || Box::new(BlockReader::new(&[JAMBA_BLOCK])),
    forms: &[Form {
        word: "",
        trigger: "<tool_calls>",
        after_trigger: "[\n",
        calls: Calls::InOneBlock { separator: ", ", close: "\n]</tool_calls>" },
        call: CALL,
    }],
    ..HERMES
};

/// Cohere Command R7B and A.
pub(super) const COHERE: ToolFormat = ToolFormat {
    name: "cohere",
    signs: &[&["<|START_ACTION|>"]],
    markers: &["<|START_ACTION|>", "<|END_ACTION|>"],
    syntax: || Box::new(BlockReader::new(&[COHERE_BLOCK])),
    forms: &[Form {
        word: "",
        trigger: "<|START_ACTION|>",
        after_trigger: "[\n    ",
        calls: Calls::InOneBlock { separator: ", ", close: "\n]<|END_ACTION|>" },
        call: Call::Json(&[
            Piece::Text("{\"tool_call_id\": \"0\", \"tool_name\": \""),
            Piece::Name,
            Piece::Text("\", \"parameters\": "),
            Piece::Arguments,
            Piece::Text("}"),
        ]),
    }],
    ..HERMES
};

/// NVIDIA Nemotron.
pub(super) const NEMOTRON: ToolFormat = ToolFormat {
    name: "nemotron",
    signs: &[&["<TOOLCALL>"]],
    markers: &["<TOOLCALL>", "</TOOLCALL>"],
    syntax: || Box::new(BlockReader::new(&[NEMOTRON_BLOCK])),
    forms: &[Form {
        word: "",
        trigger: "<TOOLCALL>",
        after_trigger: "[",
        calls: Calls::InOneBlock { separator: ", ", close: "]</TOOLCALL>" },
        call: CALL,
    }],
    ..HERMES
};
