//! Seed-OSS: like Qwen2, with biases of queries, keys and values; heads may be wider than the embedding.

use super::{
    Arch, NORM_AFTER_ATTENTION,
    hugging_face::{DECODER_KEYS, HuggingFace, RMS, SILU},
};

pub const SEED_OSS: Arch = Arch {
    name: "seed_oss",
    gguf_names: NORM_AFTER_ATTENTION,
    hugging_face: Some(&HuggingFace {
        model_types: &["seed_oss"],
        keys: &[DECODER_KEYS, RMS, &[SILU]],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};
