//! Llama 3.1 and later: an answer that is `{"name": …, "parameters": …}`, or several of these separated by semicolons. `<|python_tag|>`
//! comes before the same, a built-in tool as `name.call(query="…")`, or code for an interpreter. Llama 4 and 3.2 also write `[name(a=1),
//! …]`.
//!
//! Source: https://github.com/meta-llama/llama-models (prompt_format.md of the 3.1, 3.2 and 4 models).

use super::super::blocks::{Block, BlockReader, Content};
use super::super::format::{Call, Calls, Form, Piece, ToolFormat};
use super::hermes::HERMES;

const BLOCK: Block =
    Block { open: "<|python_tag|>", kept: 0, close: None, content: Content::JsonPythonOrCode, is_guess: false };

pub(super) const LLAMA3: ToolFormat = ToolFormat {
    name: "llama3",
    signs: &[
        &["<|python_tag|>"],
        &["<|start_header_id|>", "ipython"],
        &["<|start_header_id|>", "tools"],
        &["<|header_start|>", "tools"],
    ],
    needs_tools_in_template: true,
    markers: &["<|python_tag|>"],
    syntax: || Box::new(BlockReader::new(&[BLOCK]).or_unmarked()),
    forms: &[Form {
        word: "",
        trigger: "",
        after_trigger: "",
        calls: Calls::InOneBlock { separator: "; ", close: "" },
        call: Call::Json(&[
            Piece::Text("{\"name\": \""),
            Piece::Name,
            Piece::Text("\", \"parameters\": "),
            Piece::Arguments,
            Piece::Text("}"),
        ]),
    }],
    ..HERMES
};
