//! Granite 3, dense and MoE: like Llama, with factors for embedding, attention, residuals and logits in the metadata.
//!
//! llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, RopeKind,
    hugging_face::{
        COMMON_NAMES, ConfigKey, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, SILU, required,
    },
    tensors::MIXTURE_IN_ONE,
};

pub const GRANITE: Arch = Arch {
    name: "granite",
    rope: Some(RopeKind::Interleaved),
    has_scales: true,
    hugging_face: Some(&HuggingFace {
        model_types: &["granite"],
        keys: &[DECODER_KEYS, RMS, &[SILU], SCALES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const GRANITE_MOE: Arch = Arch {
    name: "granitemoe",
    experts: &[MIXTURE_IN_ONE],
    hugging_face: Some(&HuggingFace {
        model_types: &["granitemoe"],
        keys: &[DECODER_KEYS, RMS, &[SILU], SCALES, EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, EXPERT_NAMES],
        ..HuggingFace::DECODER
    }),
    ..GRANITE
};

const EXPERTS: &[ConfigKey] = &[
    required("num_local_experts", KeyMapping::Integer("expert_count")),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
];

pub(super) const EXPERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"),
    ("blk.{}.ffn_gate_up_exps", "model.layers.{}.block_sparse_moe.input_linear"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear"),
];

pub(super) const SCALES: &[ConfigKey] = &[
    required("attention_multiplier", KeyMapping::Float("attention.scale")),
    required("embedding_multiplier", KeyMapping::Float("embedding_scale")),
    required("residual_multiplier", KeyMapping::Float("residual_scale")),
    required("logits_scaling", KeyMapping::Float("logit_scale")),
];
