//! MiniMax M2: `<minimax:tool_call><invoke name="name"><parameter name="key">value</parameter></invoke></minimax:tool_call>`.
//!
//! Source: the model's chat template.

use super::super::format::{Call, Calls, Form, ToolFormat};
use super::super::tags::{TagReader, Tags};
use super::hermes::HERMES;
use super::qwen3_coder;

const TAGS: Tags = Tags {
    open: "<minimax:tool_call>",
    close: "</minimax:tool_call>",
    function: "<invoke name=\"",
    name_end: "\">",
    function_close: "</invoke>",
    key: "<parameter name=\"",
    key_end: "\">",
    ..qwen3_coder::TAGS
};

pub(super) const MINIMAX: ToolFormat = ToolFormat {
    name: "minimax",
    signs: &[&["<minimax:tool_call>"]],
    markers: &["<minimax:tool_call>", "</minimax:tool_call>"],
    syntax: || Box::new(TagReader::new(&TAGS)),
    forms: &[Form {
        word: "",
        trigger: "<minimax:tool_call>",
        after_trigger: "\n",
        calls: Calls::InOneBlock { separator: "\n", close: "\n</minimax:tool_call>" },
        call: Call::Tags(&TAGS),
    }],
    ..HERMES
};
