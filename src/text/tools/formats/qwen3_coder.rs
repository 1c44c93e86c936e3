//! Qwen3-Coder and Qwen 3.5: `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`. Seed OSS has other
//! names for the outer tags.
//!
//! Source: the chat templates of the models named.

use super::super::format::{Call, Calls, Form, ToolFormat};
use super::super::tags::{TagReader, Tags};
use super::hermes::HERMES;

pub(super) const TAGS: Tags = Tags {
    open: "<tool_call>",
    close: "</tool_call>",
    function: "<function=",
    name_end: ">",
    function_close: "</function>",
    key: "<parameter=",
    key_end: ">",
    is_text: None,
    value: "",
    value_close: "</parameter>",
    value_ends: &["</parameter>", "\n</parameter>", "\r\n</parameter>"],
    lines: true,
};
const SEED_TAGS: Tags = Tags { open: "<seed:tool_call>", close: "</seed:tool_call>", ..TAGS };

pub(super) const QWEN3_CODER: ToolFormat = ToolFormat {
    name: "qwen3_coder",
    signs: &[&["<function=", "<parameter="]],
    markers: &["<tool_call>", "</tool_call>"],
    syntax: || Box::new(TagReader::new(&TAGS)),
    forms: &[Form {
        word: "",
        trigger: "<tool_call>",
        after_trigger: "\n",
        calls: Calls::EachInABlock { separator: "\n", close: "\n</tool_call>" },
        call: Call::Tags(&TAGS),
    }],
    ..HERMES
};

pub(super) const SEED: ToolFormat = ToolFormat {
    name: "seed",
    signs: &[&["<seed:tool_call>"]],
    markers: &["<seed:tool_call>", "</seed:tool_call>"],
    syntax: || Box::new(TagReader::new(&SEED_TAGS)),
    forms: &[Form {
        word: "",
        trigger: "<seed:tool_call>",
        after_trigger: "\n",
        calls: Calls::EachInABlock { separator: "\n", close: "\n</seed:tool_call>" },
        call: Call::Tags(&SEED_TAGS),
    }],
    ..HERMES
};
