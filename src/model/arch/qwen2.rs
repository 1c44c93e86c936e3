//! Qwen2: like Llama, with biases on queries, keys and values. Dense models of Qwen2 and Qwen2.5, and models distilled into them. Rope
//! pairs the halves of a head.

use super::{
    Arch,
    hugging_face::{ConfigKey, DECODER_KEYS, HuggingFace, KeyMapping, RMS, SILU, optional},
    tensors::{ATTENTION_WITH_BIASES, NORMS},
};

pub const QWEN2: Arch = Arch {
    name: "qwen2",
    layer_tensors: &[NORMS, ATTENTION_WITH_BIASES],
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen2"],
        keys: &[DECODER_KEYS, RMS, &[SILU], LATE_WINDOWS],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

/// Windows in the last layers, which most configurations switch off.
pub(super) const LATE_WINDOWS: &[ConfigKey] = &[
    optional("sliding_window", KeyMapping::IntegerIf("use_sliding_window", "attention.sliding_window")),
    optional("use_sliding_window", KeyMapping::HasWindows("attention.sliding_window_pattern")),
];
