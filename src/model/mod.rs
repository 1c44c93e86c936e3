//! Models: file formats, configuration, weights on the GPU, the forward pass and its KV cache.
//!
//! This layer knows tensors and files. It never names a GPU buffer, a pipeline or a URL, and knows no text.

pub mod arch;
pub mod config;
mod decode;
pub mod gguf;
mod joined;
mod kv_cache;
mod plain;
mod prefill;
pub mod source;
mod transformer;
mod weights;

pub use kv_cache::KvCache;
pub use transformer::{Logits, Precision, Transformer};
pub use weights::{Progress, Weights};
