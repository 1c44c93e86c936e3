//! Chat completions: the next message of a conversation.

use serde_json::{Map, Value};

use super::{ChatLogprobsFields, Fields, GenerationFields, ReasoningFields, group};
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

impl ChatFields {
    /// The functions that the model may call, and whether it is to.
    pub(in crate::engine::api) fn functions(&self) -> Result<(Tools, ToolChoice)> {
        let tools = Tools::new(self.tools.as_deref().unwrap_or_default())?;
        let choice = ToolChoice::new(self.tool_choice.as_ref(), &tools)?;
        Ok((tools, choice))
    }
}
