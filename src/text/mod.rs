//! Text in, text out: tokenizer, streaming detokenizer, stop strings, chat templates, reasoning, tool calls.
//!
//! Runs without a GPU and without files: callers pass plain data. Uses only the error type of this crate; must not know tensors,
//! models, file formats, requests or the browser, and has no clock.

pub mod answer;
pub mod chat;
pub mod detokenize;
pub mod grammar;
pub mod reasoning;
pub mod stop;
pub mod tokenizer;
pub mod tools;
