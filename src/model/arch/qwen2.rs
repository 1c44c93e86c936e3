//! Qwen2: as Llama, with biases on queries, keys and values. Dense models of Qwen2 and Qwen2.5, and what is distilled into
//! them. Rope turns the halves of a head.

use super::{
    Arch,
    hugging_face::{ConfigKey, DECODER_KEYS, Fixed, HuggingFace, Meaning, SILU, optional},
    tensors::{ATTENTION_WITH_BIASES, NORMS},
};

pub const QWEN2: Arch = Arch {
    name: "qwen2",
    layer_tensors: &[NORMS, ATTENTION_WITH_BIASES],
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen2"],
        keys: &[DECODER_KEYS, &[SILU, NO_WINDOW]],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

/// There is a window in the configurations, which this switches off in all that were released.
pub(super) const NO_WINDOW: ConfigKey = optional("use_sliding_window", Meaning::OneOf(&[Fixed::Bool(false)]));
