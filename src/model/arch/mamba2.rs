//! Mamba-2 without attention and feed-forwards, and what models that have it beside attention share with it.
//!
//! llama.cpp's converter stores −exp(A_log), and the norm group by group.

use super::{
    Arch, LayerPattern, RecurrenceKind, WeightTransform,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, SILU, optional, required},
    tensors::{ATTENTION_NORM, MAMBA_NORM, MAMBA2 as MAMBA2_TENSORS},
};

pub const MAMBA2: Arch = Arch {
    name: "mamba2",
    rope: None,
    layers: LayerPattern::Recurrent,
    recurrence: Some(RecurrenceKind::Mamba2),
    layer_tensors: &[ATTENTION_NORM],
    recurrent_tensors: &[MAMBA2_TENSORS, MAMBA_NORM],
    feed_forward: &[],
    hugging_face: Some(&HuggingFace {
        model_types: &["mamba2"],
        defaults: &[
            ("max_position_embeddings", ConstValue::Number(1048576.0)),
            ("tie_word_embeddings", ConstValue::Bool(false)),
        ],
        keys: &[BACKBONE_KEYS, KEYS, &[SILU]],
        names: &[BACKBONE_NAMES],
        whole_names: &[BACKBONE_WHOLE_NAMES],
        // Codestral's.
        prefixes: &["model."],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

/// Keys of models that are state space models throughout.
pub(super) const BACKBONE_KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("layer_norm_epsilon", KeyMapping::Float("attention.layer_norm_rms_epsilon")),
    required("conv_kernel", KeyMapping::Integer("ssm.conv_kernel")),
    required("state_size", KeyMapping::Integer("ssm.state_size")),
    required("expand", KeyMapping::Integer("ssm.expand")),
    optional("use_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("use_conv_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
];

const KEYS: &[ConfigKey] = &[
    required("num_heads", KeyMapping::Integer("ssm.time_step_rank")),
    required("n_groups", KeyMapping::Integer("ssm.group_count")),
    optional("time_step_limit", KeyMapping::NoLimit),
];

/// Keys that start with `mamba_`, of models with attention besides.
pub(super) const MAMBA_KEYS: &[ConfigKey] = &[
    required("mamba_n_heads", KeyMapping::Integer("ssm.time_step_rank")),
    required("mamba_n_groups", KeyMapping::Integer("ssm.group_count")),
    required("mamba_d_state", KeyMapping::Integer("ssm.state_size")),
    required("mamba_d_conv", KeyMapping::Integer("ssm.conv_kernel")),
    required("mamba_expand", KeyMapping::Integer("ssm.expand")),
    optional("mamba_conv_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("mamba_proj_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("time_step_limit", KeyMapping::NoLimit),
];

pub(super) const MAMBA_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ssm_in", "model.layers.{}.mamba.in_proj"),
    ("blk.{}.ssm_conv1d", "model.layers.{}.mamba.conv1d"),
    ("blk.{}.ssm_norm", "model.layers.{}.mamba.norm"),
    ("blk.{}.ssm_out", "model.layers.{}.mamba.out_proj"),
];

pub(super) const MAMBA_WHOLE_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ssm_a", "model.layers.{}.mamba.A_log"),
    ("blk.{}.ssm_d", "model.layers.{}.mamba.D"),
    ("blk.{}.ssm_dt.bias", "model.layers.{}.mamba.dt_bias"),
];

pub(super) const BACKBONE_NAMES: &[(&str, &str)] = &[
    ("token_embd", "backbone.embeddings"),
    ("token_embd", "backbone.embedding"),
    ("output_norm", "backbone.norm_f"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "backbone.layers.{}.norm"),
    ("blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"),
    ("blk.{}.ssm_conv1d", "backbone.layers.{}.mixer.conv1d"),
    ("blk.{}.ssm_norm", "backbone.layers.{}.mixer.norm"),
    ("blk.{}.ssm_out", "backbone.layers.{}.mixer.out_proj"),
];

pub(super) const BACKBONE_WHOLE_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ssm_a", "backbone.layers.{}.mixer.A_log"),
    ("blk.{}.ssm_d", "backbone.layers.{}.mixer.D"),
    ("blk.{}.ssm_dt.bias", "backbone.layers.{}.mixer.dt_bias"),
];

pub(super) const TRANSFORMS: &[(&str, WeightTransform)] =
    &[("blk.{}.ssm_conv1d", WeightTransform::Squeeze), ("blk.{}.ssm_a", WeightTransform::NegativeExp)];
