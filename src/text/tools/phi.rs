//! Phi-4-mini: `<|tool_call|>[{"name": …, "arguments": {…}}]<|/tool_call|>`, or `functools[…]` with the same array. Granite writes
//! `<|tool_call|>[…]` without an end.
//!
//! Sources: https://huggingface.co/microsoft/Phi-4-mini-instruct (model card and chat template), Granite's chat template.

use super::blocks::{Block, Content};

pub(super) const PHI: [Block; 2] = [
    Block::json("<|tool_call|>", Some("<|/tool_call|>")),
    Block { open: "functools[", kept: 1, close: None, content: Content::Json, is_guess: false },
];
