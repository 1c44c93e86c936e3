//! Chat completions: the next message of a conversation.

use serde_json::{Map, Value};

use super::{ChatLogprobsFields, Fields, GenerationFields, ReasoningFields, group};
use crate::error::Result;
use crate::text::tools::{ToolChoice, Tools};

/// A request for a chat completion.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// Messages, tools and template.
    pub chat: ChatFields,
    /// Off by default.
    pub logprobs: ChatLogprobsFields,
    /// Where reasoning goes, and how long it may be.
    pub reasoning: ReasoningFields,
    /// What completions have as well.
    pub generation: GenerationFields,
}

group! {
    /// What a chat is made of.
    #[derive(Clone, Debug)]
    pub struct ChatFields {
        /// The conversation, oldest message first; at least one. A `content` is a text, or parts of type `text`.
        #[cfg_attr(test, ts(type = "ChatMessage[]"))]
        pub messages: Vec<Value>,
        /// Functions that the model may call (at most 128). Calls are read in the format of the model's family, which its chat template
        /// tells, and held to the functions' schemas by a grammar (the second wasm), except with `speculation`, `ignore_eos` or a logits
        /// processor, where only `tool_choice` decides: `auto` goes without, the others reject.
        #[cfg_attr(test, ts(type = "Tool[] | null"))]
        pub tools: Option<Vec<Value>>,
        /// Default: `auto`.
        #[cfg_attr(test, ts(type = "ToolChoice | null"))]
        pub tool_choice: Option<Value>,
        /// Several calls in one answer. Default: true; with false the answer ends after the first one.
        pub parallel_tool_calls: Option<bool>,
        /// Another chat template than the model's, in Jinja. An extension, as the three below, in vLLM's words.
        pub chat_template: Option<String>,
        /// Variables for the chat template, such as `{enable_thinking: false}`.
        #[cfg_attr(test, ts(type = "Record<string, unknown> | null"))]
        pub chat_template_kwargs: Option<Map<String, Value>>,
        /// Whether the template begins an answer after the messages. Default: true, unless `continue_final_message` is.
        pub add_generation_prompt: Option<bool>,
        /// The answer goes on with the last message, which is the assistant's and is not finished; it comes without what is there already.
        /// Default: false.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub continue_final_message: bool,
    }
}

impl ChatRequest {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
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
