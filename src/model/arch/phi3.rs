//! Phi-3, 3.5, 4 and 4-mini: as Llama, with queries, keys and values in one matrix, gate and up in another, rope on a part of a head
//! (4-mini) and longrope (those of 128k).

use super::{
    Arch,
    hugging_face::{COMMON_NAMES, DECODER_KEYS, HuggingFace, PRE_NORM_NAMES, SILU, WINDOW},
    tensors::GATED_IN_ONE,
};

pub const PHI3: Arch = Arch {
    name: "phi3",
    feed_forward: GATED_IN_ONE,
    hugging_face: Some(&HuggingFace {
        model_types: &["phi3"],
        keys: &[DECODER_KEYS, &[SILU], WINDOW],
        names: &[JOINED_NAMES, COMMON_NAMES, PRE_NORM_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const JOINED_NAMES: &[(&str, &str)] =
    &[("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"), ("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj")];
