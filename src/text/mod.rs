//! Text in, text out: tokenizer, streaming detokenizer, stop strings, chat templates, reasoning, tool calls.
//!
//! Needs no GPU and no files: callers pass plain data. Uses only the error type of this crate. Must not know tensors, models, file formats,
//! requests or the browser, and has no clock.

pub mod answer;
pub mod chat;
pub mod detokenize;
pub mod grammar;
pub(crate) mod grammar_limits;
pub mod reasoning;
pub mod stop;
pub mod tokenizer;
pub mod tools;
