//! Phi-3, 3.5, 4 and 4-mini: like Llama, but queries, keys and values are one matrix, and gate and up another. 4-mini has rope on a part of
//! each head, and the 128k models have longrope.

use super::{
    Arch,
    hugging_face::{COMMON_NAMES, DECODER_KEYS, HuggingFace, PRE_NORM_NAMES, RMS, SILU, WINDOW},
    tensors::GATED_IN_ONE,
};

pub const PHI3: Arch = Arch {
    name: "phi3",
    feed_forward: GATED_IN_ONE,
    hugging_face: Some(&HuggingFace {
        model_types: &["phi3"],
        keys: &[DECODER_KEYS, RMS, &[SILU], WINDOW],
        names: &[JOINED_NAMES, COMMON_NAMES, PRE_NORM_NAMES],
        partial_rope: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const JOINED_NAMES: &[(&str, &str)] =
    &[("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"), ("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj")];
