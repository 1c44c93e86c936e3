//! Chat completions: the next message of a conversation.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::{ChatLogprobsFields, Fields, GenerationFields, ReasoningFields, group};
use crate::engine::choices::Generation;
use crate::engine::loaded::Engine;
use crate::error::Result;
use crate::text::tools::{ToolChoice, Tools};

/// A request for a chat completion.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    pub chat: ChatFields,
    pub logprobs: ChatLogprobsFields,
    pub reasoning: ReasoningFields,
    pub generation: GenerationFields,
}

group! {
    #[derive(Clone, Debug)]
    pub struct ChatFields {
        pub messages: Vec<Value>,
        /// Functions that the model may call.
        pub tools: Option<Vec<Value>>,
        /// Whether it is to call one: `"none"`, `"auto"`, `"required"`, or which.
        pub tool_choice: Option<Value>,
        /// Whether it may call several in one answer, as it may without a word on it.
        pub parallel_tool_calls: Option<bool>,
        /// Another template than the model's, in Jinja. With the three below an extension, in vLLM's words.
        pub chat_template: Option<String>,
        /// Variables for the template, such as `enable_thinking`.
        pub chat_template_kwargs: Option<Map<String, Value>>,
        /// Whether the template begins an answer behind the messages, as it does without a word on it.
        pub add_generation_prompt: Option<bool>,
        /// The answer goes on with the last message, which is the assistant's.
        #[serde(default)]
        pub continue_final_message: bool,
    }
}

impl ChatRequest {
    pub fn parse(request: Value) -> Result<Self> {
        let mut fields = Fields::of("the chat request", request)?;
        let request = Self {
            chat: fields.group()?,
            logprobs: fields.group()?,
            reasoning: fields.group()?,
            generation: GenerationFields::take(&mut fields)?,
        };
        fields.finish()?;
        Ok(request)
    }
}

impl Engine {
    /// Renders and tokenises the messages; generation starts with the first `next`.
    pub fn chat(&self, request: ChatRequest) -> Result<Generation> {
        self.0.decoder()?;
        let ChatRequest { chat, logprobs, reasoning, generation } = request;
        let (tools, choice) = chat.functions()?;
        let rendered = self.rendered(&chat, &tools, &choice)?;
        let tokenizer = self.tokenizer();
        // Most templates write BOS themselves; twice would be another prompt.
        let begins_with_bos = tokenizer.bos().is_some_and(|bos| {
            tokenizer.token_bytes_with_control(bos).is_ok_and(|text| rendered.prompt.as_bytes().starts_with(text))
        });
        let ids = tokenizer.encode(&rendered.prompt, !begins_with_bos, true)?;
        let request = generation.request(self, ids, chat.continue_final_message, logprobs.wanted()?)?;
        self.start(self.reading(request, &chat, &reasoning, Rc::new(tools), &choice, &rendered)?)
    }
}

impl ChatFields {
    /// The functions that the model may call, and whether it is to.
    pub(in crate::engine) fn functions(&self) -> Result<(Tools, ToolChoice)> {
        let tools = Tools::new(self.tools.as_deref().unwrap_or_default())?;
        let choice = ToolChoice::new(self.tool_choice.as_ref(), &tools)?;
        Ok((tools, choice))
    }
}
