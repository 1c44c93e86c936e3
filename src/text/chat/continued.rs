//! A chat whose last message is unfinished: what the template writes after the message is left out.
//!
//! Like `continue_final_message` of transformers: a mark after the message shows where to cut the rendered text.

use serde_json::Value;

use super::ChatTemplate;
use crate::error::Result;

/// It ends with a space, which shows whether the template trims messages.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

impl ChatTemplate {
    /// Renders like [`ChatTemplate::render_at`], up to the end of the content of the last of `messages`, which must be a text.
    pub fn render_continued(&self, context: &Value, local_unix_seconds: i64) -> Result<String> {
        let mut context = context.clone();
        let last = context["messages"].as_array_mut().and_then(|messages| messages.last_mut());
        let Some(Value::String(content)) = last.and_then(|message| message.get_mut("content")) else {
            bail!(InvalidRequest, "the last message has no text as content, wanted one to be continued");
        };
        let text = content.trim().to_owned();
        content.push_str(MARK);
        let mut rendered = self.render_at(&context, local_unix_seconds)?;
        let Some(at) = rendered.rfind(MARK.trim_end()).filter(|_| rendered.contains(&text)) else {
            bail!(
                ChatTemplate,
                "the chat template does not write the last message as it is, so it can't be continued; leave out \
                 continue_final_message"
            );
        };
        let keeps_spaces = rendered[at..].starts_with(MARK);
        rendered.truncate(at);
        if !keeps_spaces {
            rendered.truncate(rendered.trim_end().len());
        }
        Ok(rendered)
    }
}
