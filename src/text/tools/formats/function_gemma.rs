//! FunctionGemma: `<start_function_call>call:name{city:<escape>Paris<escape>,days:3}<end_function_call>`. Gemma 4 writes the same with
//! other markers: `<|tool_call>call:name{city:<|"|>Paris<|"|>}<tool_call|>`.
//!
//! Sources: https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices and the chat template of Gemma 4.

use super::super::format::{Call, Calls, Form, ToolFormat};
use super::super::unquoted::{Quoting, UnquotedReader};
use super::hermes::HERMES;

const QUOTING: Quoting = Quoting { open: "<start_function_call>", close: "<end_function_call>", quote: "<escape>" };
const GEMMA4_QUOTING: Quoting = Quoting { open: "<|tool_call>", close: "<tool_call|>", quote: "<|\"|>" };

pub(super) const FUNCTION_GEMMA: ToolFormat = ToolFormat {
    name: "function_gemma",
    signs: &[&["<start_function_call>"]],
    markers: &[QUOTING.open, QUOTING.close, QUOTING.quote],
    // The function's result would follow here.
    end_tokens: &["<start_function_response>"],
    syntax: || Box::new(UnquotedReader::new(&QUOTING)),
    forms: &[Form {
        word: "",
        trigger: QUOTING.open,
        after_trigger: "call:",
        calls: Calls::EachInABlock { separator: "", close: QUOTING.close },
        call: Call::Unquoted(&QUOTING),
    }],
    ..HERMES
};

pub(super) const GEMMA4: ToolFormat = ToolFormat {
    name: "gemma4",
    signs: &[&["<|tool_call>", "call:"]],
    markers: &[GEMMA4_QUOTING.open, GEMMA4_QUOTING.close, GEMMA4_QUOTING.quote],
    syntax: || Box::new(UnquotedReader::new(&GEMMA4_QUOTING)),
    forms: &[Form {
        word: "",
        trigger: GEMMA4_QUOTING.open,
        after_trigger: "call:",
        calls: Calls::EachInABlock { separator: "", close: GEMMA4_QUOTING.close },
        call: Call::Unquoted(&GEMMA4_QUOTING),
    }],
    ..HERMES
};
