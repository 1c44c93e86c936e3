//! SmolLM3: like Llama, but every fourth layer has no rope (Yang et al. 2025, "RoPE to NoPE and back again").
//!
//! llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, RopeKind,
    hugging_face::{ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, RMS, SILU, optional},
};

pub const SMOLLM3: Arch = Arch {
    name: "smollm3",
    rope: Some(RopeKind::Interleaved),
    no_rope_every: Some(4),
    hugging_face: Some(&HuggingFace {
        model_types: &["smollm3"],
        keys: &[
            DECODER_KEYS,
            RMS,
            &[
                SILU,
                // Despite its name, 1 is a layer with rope.
                optional("no_rope_layers", KeyMapping::Integer("rope.layers")),
                optional("use_sliding_window", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
            ],
        ],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};
