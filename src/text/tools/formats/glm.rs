//! GLM 4.5 and later: `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`.
//!
//! Source: the model's chat template.

use super::super::format::{Call, Calls, Form, ToolFormat};
use super::super::tags::{TagReader, Tags};
use super::hermes::HERMES;

const TAGS: Tags = Tags {
    open: "<tool_call>",
    close: "</tool_call>",
    function: "",
    name_end: "",
    function_close: "</tool_call>",
    key: "<arg_key>",
    key_end: "</arg_key>",
    is_text: None,
    value: "<arg_value>",
    value_close: "</arg_value>",
    value_ends: &["</arg_value>"],
    lines: false,
};

pub(super) const GLM: ToolFormat = ToolFormat {
    name: "glm",
    signs: &[&["<tool_call>", "<arg_key>"]],
    markers: &["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
    end_tokens: &["<|observation|>"],
    syntax: || Box::new(TagReader::new(&TAGS)),
    forms: &[Form {
        word: "",
        trigger: "<tool_call>",
        after_trigger: "",
        calls: Calls::EachInABlock { separator: "\n", close: "" },
        call: Call::Tags(&TAGS),
    }],
    ..HERMES
};
