//! LiquidAI LFM2: `<|tool_call_start|>[name(a=1)]<|tool_call_end|>`.
//!
//! Source: https://docs.liquid.ai/lfm/key-concepts/tool-use

use super::super::blocks::{Block, BlockReader, Content};
use super::super::format::{Call, Calls, Form, ToolFormat};
use super::hermes::HERMES;

const BLOCK: Block = Block {
    open: "<|tool_call_start|>",
    kept: 0,
    close: Some("<|tool_call_end|>"),
    content: Content::JsonOrPython,
    is_guess: false,
};

pub(super) const LFM2: ToolFormat = ToolFormat {
    name: "lfm2",
    signs: &[&["<|tool_call_start|>"], &["<|tool_list_start|>"]],
    markers: &["<|tool_call_start|>", "<|tool_call_end|>"],
    syntax: || Box::new(BlockReader::new(&[BLOCK])),
    forms: &[Form {
        word: "",
        trigger: "<|tool_call_start|>",
        after_trigger: "[",
        calls: Calls::InOneBlock { separator: ", ", close: "]<|tool_call_end|>" },
        call: Call::Python,
    }],
    ..HERMES
};
