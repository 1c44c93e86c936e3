//! Chat completions: the next message of a conversation.

use serde_json::{Map, Value, json};

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
    /// The messages of a chat, its tools and its template.
    #[derive(Clone, Debug)]
    pub struct ChatFields {
        /// The conversation, oldest message first; at least one. A `content` is a text, or parts of type `text`.
        #[cfg_attr(test, ts(type = "ChatMessage[]"))]
        pub messages: Vec<Value>,
        /// Functions that the model may call (at most 128). Calls are read in the format of the model's family, which follows from its chat
        /// template. A grammar (the second wasm) holds them to the functions' schemas. With `ignore_eos` there is no grammar: `auto` goes
        /// without, and a `tool_choice` that asks for a call rejects.
        #[cfg_attr(test, ts(type = "Tool[] | null"))]
        pub tools: Option<Vec<Value>>,
        /// Default: `auto`.
        #[cfg_attr(test, ts(type = "ToolChoice | null"))]
        pub tool_choice: Option<Value>,
        /// Allow several calls in one answer. If false, the answer ends after the first one. Default: true.
        pub parallel_tool_calls: Option<bool>,
        /// A chat template in Jinja, in place of the model's own. This and the next three fields are extensions, with vLLM's names.
        pub chat_template: Option<String>,
        /// Variables for the chat template, such as `{enable_thinking: false}`.
        #[cfg_attr(test, ts(type = "Record<string, unknown> | null"))]
        pub chat_template_kwargs: Option<Map<String, Value>>,
        /// Whether the template begins an answer after the messages. Default: true, but false with `continue_final_message`.
        pub add_generation_prompt: Option<bool>,
        /// The answer continues the last message, which must be the assistant's, and comes without what that already says. Default: false.
        #[serde(default)]
        #[cfg_attr(test, ts(as = "Option<bool>"))]
        pub continue_final_message: bool,
    }
}

impl ChatRequest {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
    pub fn parse(request: Value) -> Result<Self> {
        let mut fields = Fields::of("the chat request", request)?;
        let request = Self::take(&mut fields)?;
        fields.finish()?;
        Ok(request)
    }

    /// The names of all fields.
    pub fn field_names() -> Result<Vec<&'static str>> {
        let mut fields = Fields::of("the chat request", json!({"messages": []}))?;
        Self::take(&mut fields)?;
        Ok(fields.names())
    }

    fn take(fields: &mut Fields) -> Result<Self> {
        Ok(Self {
            chat: fields.group()?,
            logprobs: fields.group()?,
            reasoning: fields.group()?,
            generation: GenerationFields::take(fields)?,
        })
    }
}

impl ChatFields {
    /// The functions that the model may call, and whether it must.
    pub(in crate::engine::api) fn functions(&self) -> Result<(Tools, ToolChoice)> {
        let tools = Tools::new(self.tools.as_deref().unwrap_or_default())?;
        let choice = ToolChoice::new(self.tool_choice.as_ref(), &tools)?;
        Ok((tools, choice))
    }
}
