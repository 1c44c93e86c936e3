//! Requests to a loaded model and its answers, in the shapes of OpenAI's API.

pub(super) mod answer;
mod chat;
mod chat_answer;
pub(super) mod chat_prompt;
pub(super) mod chunk;
mod completion;
pub(super) mod embeddings;
pub(super) mod logprobs;
pub mod request;
pub mod session;
#[cfg(test)]
mod typescript;
