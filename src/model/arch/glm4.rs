//! GLM-4 (0414): norms before and after attention and feed-forward, rope on neighbours in half of each head, gate and up in one matrix.
//! GLM-4.5 and 4.6: rope on halves, dense layers first, then experts by the sigmoid of their scores, and one that every token uses.

use super::{
    Arch, NORM_AFTER_ATTENTION, RopeKind,
    ernie::SHARED_EXPERT_NAMES,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES,
        QUERY_KEY_NORM_NAMES, RMS, ROUTER_CORRECTION_NAME, SILU, optional, required,
    },
    qwen3::EXPERT_NAMES,
    tensors::{
        ATTENTION, GATED_IN_ONE, MIXTURE, NORMS, OPTIONAL_HEAD_NORMS, POST_NORMS, ROUTER_CORRECTION, SHARED_EXPERT,
    },
};
use crate::tensor::ops::Gating;

pub const GLM4: Arch = Arch {
    name: "glm4",
    rope: Some(RopeKind::Interleaved),
    layer_tensors: &[NORMS, POST_NORMS, ATTENTION],
    feed_forward: GATED_IN_ONE,
    hugging_face: Some(&HuggingFace {
        model_types: &["glm4"],
        rope: RopeKind::Interleaved,
        defaults: &[("partial_rotary_factor", ConstValue::Number(0.5)), ("rope_theta", ConstValue::Number(10000.0))],
        names: &[NAMES, COMMON_NAMES],
        partial_rope: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const GLM4_MOE: Arch = Arch {
    name: "glm4moe",
    gating: Gating::Sigmoid,
    gguf_names: NORM_AFTER_ATTENTION,
    layer_tensors: &[NORMS, ATTENTION, OPTIONAL_HEAD_NORMS],
    experts: &[MIXTURE, SHARED_EXPERT, ROUTER_CORRECTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["glm4_moe"],
        defaults: &[("partial_rotary_factor", ConstValue::Number(0.5)), ("rope_theta", ConstValue::Number(10000.0))],
        keys: &[DECODER_KEYS, RMS, &[SILU], EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, EXPERT_NAMES, SHARED_EXPERT_NAMES],
        whole_names: &[ROUTER_CORRECTION_NAME],
        partial_rope: true,
        has_further_layers: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const NAMES: &[(&str, &str)] = &[
    ("blk.{}.post_attention_norm", "model.layers.{}.post_self_attn_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"),
];

const EXPERTS: &[ConfigKey] = &[
    required("n_routed_experts", KeyMapping::Integer("expert_count")),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    required("moe_intermediate_size", KeyMapping::Integer("expert_feed_forward_length")),
    required("norm_topk_prob", KeyMapping::Bool("expert_weights_norm")),
    required("routed_scaling_factor", KeyMapping::Float("expert_weights_scale")),
    optional("n_group", KeyMapping::AllowOnly(&[ConstValue::Number(1.0)])),
];
