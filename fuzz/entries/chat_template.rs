//! Chat templates, rendered with a chat that has tools: what is refused is so by its code, and soon.

use rillm::Code;
use rillm::text::chat::ChatTemplate;
use serde_json::json;

pub fn run(bytes: &[u8]) {
    let Ok(template) = std::str::from_utf8(bytes) else { return };
    let context = json!({
        "messages": [
            {"role": "system", "content": "  Be kind.\n"},
            {"role": "user", "content": [{"type": "text", "text": "What is <it>?"}, {"type": "image"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1.5}}}]},
            {"role": "tool", "content": "é 😀", "name": "f"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}],
        "add_generation_prompt": true,
        "bos_token": "<s>",
    });
    let rendered = ChatTemplate::new(template).and_then(|template| template.render_at(&context, 1_752_105_600));
    if let Err(error) = rendered {
        assert_eq!(error.code(), Code::ChatTemplate, "{error}");
        assert!(!error.message().is_empty());
    }
}
