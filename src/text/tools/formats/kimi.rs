//! Kimi K2: `<|tool_calls_section_begin|>`, then for each call `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>`, the
//! arguments and `<|tool_call_end|>`, at last `<|tool_calls_section_end|>`. The text before the arguments is the call's id. Its number
//! counts the calls of the conversation.
//!
//! Source: https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md and the chat template.

use super::super::format::{Call, Calls, Form, Piece, ToolFormat};
use super::super::sections::{Head, SectionReader, Sections};
use super::hermes::HERMES;

const OPEN: &str = "<|tool_calls_section_begin|>";
const CALL: &str = "<|tool_call_begin|>";
const ARGUMENTS: &str = "<|tool_call_argument_begin|>";
const CALL_END: &str = "<|tool_call_end|>";
const CLOSE: &str = "<|tool_calls_section_end|>";

const SECTIONS: Sections = Sections {
    opens: &[OPEN],
    call: CALL,
    head: Head::Id { end: ARGUMENTS },
    fences: &[],
    ends: &[CALL_END],
    close: Some(CLOSE),
};

pub(super) const KIMI: ToolFormat = ToolFormat {
    name: "kimi",
    signs: &[&[OPEN], &["<|im_system|>tool_declare<|im_middle|>"]],
    markers: &[OPEN, CALL, ARGUMENTS, CALL_END, CLOSE],
    syntax: || Box::new(SectionReader::new(&SECTIONS)),
    forms: &[Form {
        word: "",
        trigger: OPEN,
        after_trigger: "",
        calls: Calls::InOneBlock { separator: "", close: CLOSE },
        call: Call::Json(&[
            Piece::Text("<|tool_call_begin|>functions."),
            Piece::Name,
            Piece::Text(":"),
            Piece::Number,
            Piece::Text(ARGUMENTS),
            Piece::Arguments,
            Piece::Text(CALL_END),
        ]),
    }],
    ..HERMES
};
