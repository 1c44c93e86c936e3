//! Which program wrote a model's files, as far as readers must know it.

/// The program whose names and order of rows the files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// llama.cpp's converter, which reorders the rows of queries and keys for some architectures.
    Gguf,
    /// transformers.
    HuggingFace,
}
