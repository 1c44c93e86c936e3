//! ERNIE 4.5: like Llama, with rope on neighbours. The models of experts have dense layers first, experts that every token uses, and a
//! correction by which experts are chosen and not weighted.

use super::{
    Arch, RopeKind,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, SILU, required,
    },
    qwen3::EXPERT_NAMES,
    tensors::{MIXTURE, ROUTER_CORRECTION, SHARED_EXPERT},
};

pub const ERNIE4_5: Arch = Arch {
    name: "ernie4_5",
    rope: Some(RopeKind::Interleaved),
    hugging_face: Some(&HuggingFace {
        model_types: &["ernie4_5"],
        rope: RopeKind::Interleaved,
        defaults: &[("tie_word_embeddings", ConstValue::Bool(true)), ("rope_theta", ConstValue::Number(500000.0))],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const ERNIE4_5_MOE: Arch = Arch {
    name: "ernie4_5-moe",
    experts: &[MIXTURE, SHARED_EXPERT, ROUTER_CORRECTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["ernie4_5_moe"],
        rope: RopeKind::Interleaved,
        defaults: &[("tie_word_embeddings", ConstValue::Bool(true)), ("rope_theta", ConstValue::Number(500000.0))],
        keys: &[DECODER_KEYS, RMS, &[SILU], EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, EXPERT_NAMES, SHARED_EXPERT_NAMES],
        whole_names: &[&[("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.moe_statics.e_score_correction_bias")]],
        // Of layers that predict further tokens.
        other_parts: &["model.mtp_"],
        ..HuggingFace::DECODER
    }),
    ..ERNIE4_5
};

const EXPERTS: &[ConfigKey] = &[
    required("moe_num_experts", KeyMapping::Integer("expert_count")),
    required("moe_k", KeyMapping::Integer("expert_used_count")),
    required("moe_intermediate_size", KeyMapping::Integer("expert_feed_forward_length")),
];

/// The experts that every token uses, as one.
pub(super) const SHARED_EXPERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"),
];
