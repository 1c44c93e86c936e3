//! Qwen2-MoE and Qwen1.5-MoE: like Qwen2, with a mixture of experts in some layers or all, and in these an expert that every token uses,
//! whose result is multiplied by a gate of its own.

use super::{
    Arch,
    hugging_face::{
        COMMON_NAMES, ConfigKey, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, SILU, optional,
    },
    qwen2::{LATE_WINDOWS, QWEN2},
    qwen3::{EXPERT_NAMES, EXPERTS},
    tensors::{MIXTURE, SHARED_EXPERT, SHARED_EXPERT_GATE},
};

pub const QWEN2_MOE: Arch = Arch {
    name: "qwen2moe",
    normalizes_experts: false,
    experts: &[MIXTURE, SHARED_EXPERT, SHARED_EXPERT_GATE],
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen2_moe"],
        keys: &[DECODER_KEYS, RMS, &[SILU], LATE_WINDOWS, EXPERTS, SHARED],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, EXPERT_NAMES, SHARED_NAMES],
        ..HuggingFace::DECODER
    }),
    ..QWEN2
};

pub(super) const SHARED: &[ConfigKey] =
    &[optional("shared_expert_intermediate_size", KeyMapping::Integer("expert_shared_feed_forward_length"))];

pub(super) const SHARED_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"),
];
