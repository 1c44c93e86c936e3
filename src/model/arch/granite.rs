//! Granite 3: like Llama, with factors for embedding, attention, residuals and logits in the metadata.
//!
//! llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, RopeKind,
    hugging_face::{ConfigKey, DECODER_KEYS, HuggingFace, KeyMapping, SILU, required},
};

pub const GRANITE: Arch = Arch {
    name: "granite",
    rope: Some(RopeKind::Interleaved),
    has_scales: true,
    hugging_face: Some(&HuggingFace {
        model_types: &["granite"],
        keys: &[DECODER_KEYS, &[SILU], SCALES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const SCALES: &[ConfigKey] = &[
    required("attention_multiplier", KeyMapping::Float("attention.scale")),
    required("embedding_multiplier", KeyMapping::Float("embedding_scale")),
    required("residual_multiplier", KeyMapping::Float("residual_scale")),
    required("logits_scaling", KeyMapping::Float("logit_scale")),
];
