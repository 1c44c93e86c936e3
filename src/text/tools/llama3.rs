//! Llama 3.1 and later: an answer that is `{"name": …, "parameters": …}`, perhaps several with semicolons between, or behind
//! `<|python_tag|>` the same, a built-in tool as `name.call(query="…")`, or code for an interpreter. Llama 4 and 3.2 also write
//! `[name(a=1), …]`.
//!
//! Source: https://github.com/meta-llama/llama-models (prompt_format.md of the 3.1, 3.2 and 4 models).

use super::blocks::{Block, Content};

pub(super) const LLAMA3: [Block; 1] =
    [Block { open: "<|python_tag|>", kept: 0, close: None, content: Content::JsonPythonOrCode, is_guess: false }];
