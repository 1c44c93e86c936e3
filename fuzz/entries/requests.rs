//! Requests as JSON: the first byte chooses among chats, completions, embeddings, rankings and labels. What is wrong in one is an invalid
//! request.

use rillm::Code;
use rillm::engine::request::{ChatRequest, CompletionRequest};
use rillm::engine::{ClassifyRequest, EmbeddingRequest, RerankRequest};
use serde_json::Value;

pub fn run(bytes: &[u8]) {
    let [kind, text @ ..] = bytes else { return };
    let Ok(request) = serde_json::from_slice::<Value>(text) else { return };
    let refused = match kind {
        3 => RerankRequest::parse(request).err(),
        4 => ClassifyRequest::parse(request).err(),
        kind if kind % 3 == 0 => ChatRequest::parse(request).err(),
        kind if kind % 3 == 1 => CompletionRequest::parse(request).err(),
        _ => EmbeddingRequest::parse(request).err(),
    };
    if let Some(error) = refused {
        assert_eq!(error.code(), Code::InvalidRequest, "{error}");
        assert!(!error.message().is_empty());
    }
}
