//! Mamba without attention and feed-forwards; Falcon Mamba, which norms step, B and C without weights; and Jamba: Mamba mixers whose norms of
//! step, B and C have weights, a few layers with attention without rope, and feed-forwards or experts, whose weights are shares of all.
//!
//! llama.cpp's converter stores −exp(A_log).

use super::{
    Arch, LayerPattern, RecurrenceKind,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, RMS, SILU, optional, required,
    },
    mamba2::{BACKBONE_KEYS, BACKBONE_NAMES, BACKBONE_WHOLE_NAMES, MAMBA_WHOLE_NAMES, TRANSFORMS},
    tensors::{ATTENTION, ATTENTION_NORM, MAMBA as MAMBA_TENSORS, MAMBA_PART_NORMS, MIXTURE, NORMS},
};

pub const MAMBA: Arch = Arch {
    name: "mamba",
    rope: None,
    layers: LayerPattern::Recurrent,
    recurrence: Some(RecurrenceKind::Mamba),
    layer_tensors: &[ATTENTION_NORM],
    recurrent_tensors: &[MAMBA_TENSORS],
    feed_forward: &[],
    hugging_face: Some(&HuggingFace {
        model_types: &["mamba"],
        defaults: &[
            ("max_position_embeddings", ConstValue::Number(1048576.0)),
            ("tie_word_embeddings", ConstValue::Bool(true)),
        ],
        keys: &[BACKBONE_KEYS, KEYS, &[SILU]],
        names: &[BACKBONE_NAMES, BACKBONE_STEP_NAMES],
        whole_names: &[BACKBONE_WHOLE_NAMES],
        transforms: TRANSFORMS,
        others: &[&FALCON_MAMBA],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const FALCON_MAMBA: HuggingFace = HuggingFace {
    model_types: &["falcon_mamba"],
    defaults: &[
        ("max_position_embeddings", ConstValue::Number(1048576.0)),
        ("tie_word_embeddings", ConstValue::Bool(true)),
        ("mixer_rms_eps", ConstValue::Number(1e-6)),
    ],
    keys: &[BACKBONE_KEYS, KEYS, &[SILU, required("mixer_rms_eps", KeyMapping::Float("ssm.dt_b_c_rms_epsilon"))]],
    names: &[BACKBONE_NAMES, BACKBONE_STEP_NAMES],
    whole_names: &[BACKBONE_WHOLE_NAMES],
    transforms: TRANSFORMS,
    ..HuggingFace::DECODER
};

pub const JAMBA: Arch = Arch {
    name: "jamba",
    rope: None,
    normalizes_experts: false,
    layers: LayerPattern::ByHeads,
    recurrence: Some(RecurrenceKind::Mamba),
    layer_tensors: &[NORMS],
    attention_tensors: &[ATTENTION],
    recurrent_tensors: &[MAMBA_TENSORS, MAMBA_PART_NORMS],
    experts: &[MIXTURE],
    hugging_face: Some(&HuggingFace {
        model_types: &["jamba"],
        keys: &[DECODER_KEYS, RMS, &[SILU], JAMBA_KEYS],
        names: &[COMMON_NAMES, JAMBA_NAMES],
        whole_names: &[MAMBA_WHOLE_NAMES],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    optional("intermediate_size", KeyMapping::Integer("ssm.inner_size")),
    optional("time_step_rank", KeyMapping::IntegerOrAuto("ssm.time_step_rank")),
];

const JAMBA_KEYS: &[ConfigKey] = &[
    required("mamba_d_state", KeyMapping::Integer("ssm.state_size")),
    required("mamba_d_conv", KeyMapping::Integer("ssm.conv_kernel")),
    required("mamba_expand", KeyMapping::Integer("ssm.expand")),
    optional("mamba_dt_rank", KeyMapping::IntegerOrAuto("ssm.time_step_rank")),
    optional("mamba_conv_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("mamba_proj_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    required("num_experts", KeyMapping::Integer("expert_count")),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    required("attn_layer_period", KeyMapping::AttentionPeriod),
];

const BACKBONE_STEP_NAMES: &[(&str, &str)] =
    &[("blk.{}.ssm_x", "backbone.layers.{}.mixer.x_proj"), ("blk.{}.ssm_dt", "backbone.layers.{}.mixer.dt_proj")];

const JAMBA_NAMES: &[(&str, &str)] = &[
    ("output_norm", "model.final_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"),
    ("blk.{}.ssm_in", "model.layers.{}.mamba.in_proj"),
    ("blk.{}.ssm_conv1d", "model.layers.{}.mamba.conv1d"),
    ("blk.{}.ssm_x", "model.layers.{}.mamba.x_proj"),
    ("blk.{}.ssm_dt", "model.layers.{}.mamba.dt_proj"),
    ("blk.{}.ssm_dt_norm", "model.layers.{}.mamba.dt_layernorm"),
    ("blk.{}.ssm_b_norm", "model.layers.{}.mamba.b_layernorm"),
    ("blk.{}.ssm_c_norm", "model.layers.{}.mamba.c_layernorm"),
    ("blk.{}.ssm_out", "model.layers.{}.mamba.out_proj"),
    ("blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"),
    ("blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{}.gate_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{}.up_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{}.down_proj"),
];
