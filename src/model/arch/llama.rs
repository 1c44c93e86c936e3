//! Llama: RMS norms before attention and feed-forward, rotary positions, grouped-query attention, SwiGLU. Llama 1 to 3.3 and models
//! of the same form: Mistral (with a window or without), Mixtral (experts), TinyLlama, SmolLM 1 and 2.
//!
//! llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, RopeKind,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, MISTRAL3_PARTS, PRE_NORM_NAMES,
        RMS, SILU, WINDOW, optional,
    },
    tensors::MIXTURE,
};

pub const LLAMA: Arch = Arch {
    name: "llama",
    rope: Some(RopeKind::Interleaved),
    experts: &[MIXTURE],
    hugging_face: Some(&HuggingFace {
        model_types: &["llama", "mistral", "mixtral"],
        keys: &[DECODER_KEYS, RMS, &[SILU], WINDOW, EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, EXPERT_NAMES],
        prefixes: &["language_model.", "model.language_model."],
        other_parts: MISTRAL3_PARTS,
        text_part_of: &["mistral3"],
        others: &[&HELIUM],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

/// Helium: the same with rope on neighbours. llama.cpp has no name for it, and its files would be Llama's.
const HELIUM: HuggingFace = HuggingFace {
    model_types: &["helium"],
    rope: RopeKind::Interleaved,
    defaults: &[("rope_theta", ConstValue::Number(100000.0))],
    ..HuggingFace::DECODER
};

const EXPERTS: &[ConfigKey] = &[
    optional("num_local_experts", KeyMapping::Integer("expert_count")),
    optional("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
];

/// For Mixtral.
const EXPERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3"),
];
