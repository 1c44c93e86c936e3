//! The tokens that a grammar allows: llguidance with a small interface of plain data, so that it can be a wasm of its own, which pages
//! load when a request first asks for structured output. Natively it is a library that the engine's tests link.
//!
//! - `vocabulary`: the model's tokens, in the trie that masks are computed on; made once for a model.
//! - `compile`: from a grammar, as JSON, to a state that follows a text.
//! - `matching`: that state.
//! - `wasm`: the same for JavaScript.
//!
//! Errors are texts that say what is wrong with the grammar; the engine gives them their codes.

mod compile;
mod matching;
mod vocabulary;
#[cfg(target_arch = "wasm32")]
mod wasm;

pub use compile::Grammars;
pub use matching::{Advance, Matching};
pub use vocabulary::{Vocabulary, words_of};
