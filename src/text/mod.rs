//! Text in, text out: tokenizer, streaming detokenizer, stop strings, chat templates, reasoning, tool calls.
//!
//! Runs without a GPU and without a file: what it needs is handed over as plain data. Uses nothing of this crate but the
//! error type; must not know tensors, models, file formats, requests or the browser, and never asks for the time itself.

pub mod answer;
pub mod chat;
pub mod detokenize;
pub mod grammar;
pub mod reasoning;
pub mod stop;
pub mod tokenizer;
pub mod tools;
