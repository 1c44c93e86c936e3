//! Nemotron-H: each layer is one part alone, a Mamba-2 mixer, attention without rope, or a feed-forward or experts without gates, whose function
//! is the square of ReLU. Experts are routed to as in DeepSeek-V3.

use super::{
    Arch, LayerKind, LayerPattern, RecurrenceKind,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, optional, required},
    mamba2::{BACKBONE_NAMES, BACKBONE_WHOLE_NAMES, TRANSFORMS},
    tensors::{
        ATTENTION, ATTENTION_NORM, MAMBA_NORM, MAMBA2, OPTIONAL_ROUTER_CORRECTION, UNGATED, UNGATED_MIXTURE,
        UNGATED_SHARED_EXPERT,
    },
};
use crate::tensor::ops::{Activation, Gating};

pub const NEMOTRON_H: Arch = Arch {
    name: "nemotron_h",
    rope: None,
    activation: Activation::ReluSquared,
    layers: LayerPattern::OnePart,
    recurrence: Some(RecurrenceKind::Mamba2),
    layer_tensors: &[ATTENTION_NORM],
    attention_tensors: &[ATTENTION],
    recurrent_tensors: &[MAMBA2, MAMBA_NORM],
    feed_forward: UNGATED,
    gating: Gating::Sigmoid,
    groups_experts: true,
    experts: &[UNGATED_MIXTURE, UNGATED_SHARED_EXPERT, OPTIONAL_ROUTER_CORRECTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["nemotron_h"],
        defaults: &[
            ("layers_block_type", ConstValue::Of("hybrid_override_pattern")),
            ("layers_block_type", ConstValue::Of("layer_types")),
            ("num_hidden_layers", ConstValue::LengthOf("layers_block_type")),
            ("head_dim", ConstValue::Of("attention_head_dim")),
            ("head_dim", ConstValue::Number(128.0)),
            ("layer_norm_epsilon", ConstValue::Of("rms_norm_eps")),
            ("norm_topk_prob", ConstValue::Bool(true)),
            ("n_group", ConstValue::Number(1.0)),
            ("topk_group", ConstValue::Number(1.0)),
        ],
        keys: &[DECODER_KEYS, KEYS, EXPERTS],
        names: &[BACKBONE_NAMES, NAMES],
        whole_names: &[
            BACKBONE_WHOLE_NAMES,
            &[("blk.{}.exp_probs_b.bias", "backbone.layers.{}.mixer.gate.e_score_correction_bias")],
        ],
        // As transformers names them.
        moved: &[("model.", "backbone.")],
        // Of layers that predict further tokens.
        other_parts: &["mtp."],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

/// The same in GGUF files of models with experts.
pub const NEMOTRON_H_MOE: Arch = Arch { name: "nemotron_h_moe", hugging_face: None, ..NEMOTRON_H };

const LAYER_KINDS: &[(&str, LayerKind)] = &[
    ("linear_attention", LayerKind::Recurrent),
    ("full_attention", LayerKind::Attention),
    ("mamba", LayerKind::Recurrent),
    ("attention", LayerKind::Attention),
    ("mlp", LayerKind::FeedForward),
    ("moe", LayerKind::FeedForward),
    ("M", LayerKind::Recurrent),
    ("*", LayerKind::Attention),
    ("-", LayerKind::FeedForward),
    ("E", LayerKind::FeedForward),
];

const KEYS: &[ConfigKey] = &[
    required("layer_norm_epsilon", KeyMapping::Float("attention.layer_norm_rms_epsilon")),
    required("mamba_num_heads", KeyMapping::Integer("ssm.time_step_rank")),
    required("mamba_head_dim", KeyMapping::Integer("ssm.head_length")),
    required("n_groups", KeyMapping::Integer("ssm.group_count")),
    required("ssm_state_size", KeyMapping::Integer("ssm.state_size")),
    required("conv_kernel", KeyMapping::Integer("ssm.conv_kernel")),
    required("layers_block_type", KeyMapping::LayerKinds(LAYER_KINDS)),
    optional("mamba_hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("silu")])),
    optional("mlp_hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("relu2")])),
    optional("attention_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("mlp_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("use_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("mamba_proj_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("use_conv_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("time_step_limit", KeyMapping::NoLimit),
];

const NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q", "backbone.layers.{}.mixer.q_proj"),
    ("blk.{}.attn_k", "backbone.layers.{}.mixer.k_proj"),
    ("blk.{}.attn_v", "backbone.layers.{}.mixer.v_proj"),
    ("blk.{}.attn_output", "backbone.layers.{}.mixer.o_proj"),
    ("blk.{}.ffn_up", "backbone.layers.{}.mixer.up_proj"),
    ("blk.{}.ffn_down", "backbone.layers.{}.mixer.down_proj"),
    ("blk.{}.ffn_gate_inp", "backbone.layers.{}.mixer.gate"),
    ("blk.{}.ffn_up_exps", "backbone.layers.{}.mixer.experts.{}.up_proj"),
    ("blk.{}.ffn_down_exps", "backbone.layers.{}.mixer.experts.{}.down_proj"),
    ("blk.{}.ffn_up_shexp", "backbone.layers.{}.mixer.shared_experts.up_proj"),
    ("blk.{}.ffn_down_shexp", "backbone.layers.{}.mixer.shared_experts.down_proj"),
];

/// Models without experts may have these too.
const EXPERTS: &[ConfigKey] = &[
    optional("n_routed_experts", KeyMapping::Integer("expert_count")),
    optional("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    optional("moe_intermediate_size", KeyMapping::Integer("expert_feed_forward_length")),
    optional("routed_scaling_factor", KeyMapping::Float("expert_weights_scale")),
    optional("norm_topk_prob", KeyMapping::Bool("expert_weights_norm")),
    optional("n_group", KeyMapping::Integer("expert_group_count")),
    optional("topk_group", KeyMapping::Integer("expert_group_used_count")),
    // Experts of shortened tokens.
    optional("moe_latent_size", KeyMapping::AllowOnly(&[])),
];
