//! Nemotron-H: each layer is one part alone, a Mamba-2 mixer, attention without rope, or a feed-forward without a gate whose function is the
//! square of ReLU. Not the models with experts.

use super::{
    Arch, LayerKind, LayerPattern, RecurrenceKind,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, optional, required},
    mamba2::{BACKBONE_NAMES, BACKBONE_WHOLE_NAMES, TRANSFORMS},
    tensors::{ATTENTION, ATTENTION_NORM, MAMBA_NORM, MAMBA2, UNGATED},
};
use crate::tensor::ops::Activation;

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
    hugging_face: Some(&HuggingFace {
        model_types: &["nemotron_h"],
        defaults: &[
            ("layers_block_type", ConstValue::Of("hybrid_override_pattern")),
            ("layers_block_type", ConstValue::Of("layer_types")),
            ("num_hidden_layers", ConstValue::LengthOf("layers_block_type")),
            ("head_dim", ConstValue::Of("attention_head_dim")),
            ("head_dim", ConstValue::Number(128.0)),
            ("layer_norm_epsilon", ConstValue::Of("rms_norm_eps")),
        ],
        keys: &[DECODER_KEYS, KEYS],
        names: &[BACKBONE_NAMES, NAMES],
        whole_names: BACKBONE_WHOLE_NAMES,
        // As transformers names them.
        moved: &[("model.", "backbone.")],
        // Of layers that predict further tokens.
        other_parts: &["mtp."],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const LAYER_KINDS: &[(&str, LayerKind)] = &[
    ("linear_attention", LayerKind::Recurrent),
    ("full_attention", LayerKind::Attention),
    ("mamba", LayerKind::Recurrent),
    ("attention", LayerKind::Attention),
    ("mlp", LayerKind::FeedForward),
    ("M", LayerKind::Recurrent),
    ("*", LayerKind::Attention),
    ("-", LayerKind::FeedForward),
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
];
