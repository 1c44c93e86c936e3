//! Requests to a loaded model and its answers, in the shapes of OpenAI's API.

mod adapters;
pub(super) mod answer;
mod chat;
mod chat_answer;
pub(super) mod chat_prompt;
pub(super) mod chunk;
mod completion;
pub(super) mod embeddings;
pub(super) mod logprobs;
mod passes;
pub mod request;
pub(super) mod rerank_prompt;
pub(super) mod scores;
pub mod session;
#[cfg(test)]
pub(crate) mod typescript;
