//! Calls as JSON between tags. Hermes and Qwen 2.5 and 3 write `<tool_call>{"name": …, "arguments": …}</tool_call>`, and several
//! other families the same with an array and tags of their own.
//!
//! Sources: https://github.com/NousResearch/Hermes-Function-Calling and the chat templates of the models named.

use super::blocks::Block;

pub(super) const HERMES: [Block; 1] = [Block::json("<tool_call>", Some("</tool_call>"))];
/// AI21 Jamba.
pub(super) const JAMBA: [Block; 1] = [Block::json("<tool_calls>", Some("</tool_calls>"))];
/// Cohere Command R7B and A.
pub(super) const COHERE: [Block; 1] = [Block::json("<|START_ACTION|>", Some("<|END_ACTION|>"))];
/// NVIDIA Nemotron.
pub(super) const NEMOTRON: [Block; 1] = [Block::json("<TOOLCALL>", Some("</TOOLCALL>"))];
