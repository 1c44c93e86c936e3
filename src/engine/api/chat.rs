//! Chats: from a request to the generation of the next message.

use std::rc::Rc;

use super::chat_prompt::Rendered;
use super::request::{ChatFields, ChatRequest};
use crate::engine::engine::Engine;
use crate::engine::generation::Generation;
use crate::error::Result;
use crate::text::tools::{ToolChoice, Tools};

impl Engine {
    /// The messages as the template writes them.
    pub fn prompt(&self, chat: &ChatFields) -> Result<String> {
        let (tools, choice) = chat.functions()?;
        Ok(self.render(chat, &tools, &choice)?.prompt)
    }

    /// The tokens of that text.
    pub fn prompt_ids(&self, chat: &ChatFields) -> Result<Vec<u32>> {
        self.encode_chat(&self.prompt(chat)?)
    }

    /// Renders and tokenises the messages. Nothing is generated before the first `next`.
    pub fn chat(&self, request: ChatRequest) -> Result<Generation> {
        self.0.chat_decoder()?;
        let ChatRequest { chat, logprobs, reasoning, generation } = request;
        let (tools, choice) = chat.functions()?;
        let rendered = self.render(&chat, &tools, &choice)?;
        let ids = self.encode_chat(&rendered.prompt)?;
        let request = self.request(generation, ids, chat.continue_final_message, logprobs.wanted()?)?;
        self.start(self.reading(request, &chat, &reasoning, Rc::new(tools), &choice, &rendered)?)
    }

    /// The tokens of a chat as its template wrote it.
    pub(super) fn encode_chat(&self, prompt: &str) -> Result<Vec<u32>> {
        let tokenizer = self.tokenizer();
        // Most templates write BOS themselves. A second one would be another prompt.
        let begins_with_bos = tokenizer.bos().is_some_and(|bos| {
            tokenizer.token_bytes_with_control(bos).is_ok_and(|text| prompt.as_bytes().starts_with(text))
        });
        tokenizer.encode(prompt, !begins_with_bos, true)
    }

    fn render(&self, chat: &ChatFields, tools: &Tools, choice: &ToolChoice) -> Result<Rendered> {
        self.0.templates.render(chat, tools, choice, self.tokenizer(), self.0.utc_offset_seconds)
    }
}
