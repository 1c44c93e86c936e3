//! GPT-OSS, which writes in channels (`channels.rs`).
//!
//! Source: https://cookbook.openai.com/articles/openai-harmony

use super::super::channels::{ChannelReader, MARKERS};
use super::super::format::{Channels, ToolFormat};
use super::hermes::HERMES;

pub(super) const HARMONY: ToolFormat = ToolFormat {
    name: "harmony",
    signs: &[&["<|channel|>", "<|message|>", "<|start|>"]],
    markers: &MARKERS,
    syntax: || Box::new(ChannelReader::new(false)),
    // There are no blocks of calls; `ToolGrammar` has its own grammar for channels.
    forms: &[],
    channels: Some(Channels {
        prompt_end: "<|start|>assistant",
        reasoning_end: &["<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>"],
    }),
    ..HERMES
};
