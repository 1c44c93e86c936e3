//! Gemma 3: functions are described in the text of the prompt, and calls stand in a fence, ```` ```tool_code ```` as Python, or
//! ```` ```json ```` as JSON, or are the whole answer.
//!
//! Source: https://ai.google.dev/gemma/docs/capabilities/function-calling

use super::blocks::{Block, Content};

pub(super) const GEMMA: [Block; 3] = [
    // What our own description of the functions asks for, which stands in for the template's.
    Block::json("<tool_call>", Some("</tool_call>")),
    Block { open: "```tool_code", kept: 0, close: Some("```"), content: Content::JsonOrPython, is_guess: false },
    Block { open: "```json", kept: 0, close: Some("```"), content: Content::Json, is_guess: true },
];
