//! Phi-3.5-MoE: layer norms, biases of the projections and of the logits, longrope, and a mixture of experts whose router weighs by
//! SparseMixer.

use super::{
    Arch, Norm,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, SILU, WINDOW,
        optional, required,
    },
    tensors::{ATTENTION, MIXTURE, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, OUTPUT_BIAS, ROPE_FACTORS},
};
use crate::tensor::ops::Gating;

pub const PHIMOE: Arch = Arch {
    name: "phimoe",
    norm: Norm::Layer,
    gating: Gating::Sparse { jitter: 0.01 },
    model_tensors: &[MODEL, MODEL_NORM_BIAS, OUTPUT_BIAS, ROPE_FACTORS],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    experts: &[MIXTURE],
    hugging_face: Some(&HuggingFace {
        model_types: &["phimoe"],
        keys: &[DECODER_KEYS, &[SILU], WINDOW, KEYS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, EXPERT_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("rms_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("num_local_experts", KeyMapping::Integer("expert_count")),
    // SparseMixer is made for two.
    required("num_experts_per_tok", KeyMapping::AllowOnly(&[ConstValue::Number(2.0)])),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    optional("router_jitter_noise", KeyMapping::Float("router_jitter_noise")),
];

/// Those of Mixtral.
const EXPERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3"),
];
