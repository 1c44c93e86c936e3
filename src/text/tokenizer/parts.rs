//! What `gguf` and `hugging_face` read from files, and `Tokenizer` is built from.

use super::added::Added;
use super::decoding::Decoding;
use super::pair::PairForm;
use super::pipeline::Pipeline;
use super::vocabulary::TokenType;

/// A tokenizer built from the crate's parts, before its tokens' bytes are known.
pub(super) struct Parts {
    pub pipeline: Pipeline,
    pub decoding: Decoding,
    /// The tokens by id; `None` for an id without a token.
    pub tokens: Vec<Option<String>>,
    pub types: Vec<TokenType>,
    pub added: Vec<Added>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub pad: Option<u32>,
    pub before: Vec<u32>,
    pub after: Vec<u32>,
    /// The form of two texts, if there is one.
    pub pair: Option<PairForm>,
    pub end_of_generation: Vec<u32>,
}
