//! Models: file formats, configuration, weights on the GPU, the forward pass and its KV cache.
//!
//! This layer knows tensors and files. It never names a GPU buffer, a pipeline or a URL, and knows no text.

mod altup;
mod altup_config;
pub mod arch;
mod attention;
mod buckets;
pub mod checkpoint;
mod classifier;
pub mod config;
mod context_shift;
mod decode;
mod dense;
mod disentangled;
mod distances;
mod encoder;
mod feed_forward;
pub mod folder;
mod fused;
pub mod gguf;
pub mod hugging_face;
mod keys;
mod layer;
pub mod layer_config;
mod layer_keys;
mod layer_ops;
mod linear;
mod matrix;
mod mixer;
mod mixture;
mod norm;
mod per_layer;
mod pooling;
mod prefill;
pub mod recurrence;
pub mod rope;
pub mod safetensors;
pub mod source;
pub mod source_reader;
pub mod state;
mod tensor_sizes;
mod transformer;
mod unfused;
mod weight_layout;
mod weight_stream;
mod weights;

pub(crate) use classifier::{Classifier, ClassifierConfig, Relevance, ScoreFunction};
pub(crate) use dense::DenseLayers;
pub(crate) use encoder::{Encoder, EncoderText};
pub(crate) use pooling::{Embeds, Pooling};
pub use prefill::Precision;
pub use state::{KvCache, KvFormat, LayerStates};
pub use transformer::{Logits, Transformer};
pub use weight_layout::Layout;
pub use weights::Weights;
pub(crate) use weights::{Run, Unloaded};
