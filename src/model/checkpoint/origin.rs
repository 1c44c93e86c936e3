//! Who wrote a model's files, as far as reading them depends on it.

/// Where a model's names and the order of its rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// As llama.cpp's converter writes them, which for some architectures reorders the rows of queries and keys.
    Gguf,
    /// As transformers has them.
    HuggingFace,
}
