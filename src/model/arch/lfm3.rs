//! LFM3: gated short convolutions between layers whose attention has a window or has none, each with a rope of its own. A gate multiplies the
//! result of each head, and parts of a layer are normed before and after.
//!
//! Source: transformers' `modular_lfm3.py`. llama.cpp has no such architecture, so its names here are ours.

use super::{
    Arch, LayerKind, LayerPattern, RecurrenceKind, WindowRope,
    hugging_face::{
        ByKind, COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, QUERY_KEY_NORM_NAMES,
        optional, required,
    },
    lfm2::{CONVOLUTION_NAMES, TRANSFORMS},
    tensors::{ATTENTION, HEAD_GATES, HEAD_NORMS, NORMS, POST_NORMS, SHORT_CONVOLUTION},
};

pub const LFM3: Arch = Arch {
    name: "lfm3",
    window_rope: Some(WindowRope { default_theta: Some(10000.0) }),
    layers: LayerPattern::ByHeads,
    recurrence: Some(RecurrenceKind::ShortConvolution),
    layer_tensors: &[NORMS, POST_NORMS],
    attention_tensors: &[ATTENTION, HEAD_NORMS, HEAD_GATES],
    recurrent_tensors: &[SHORT_CONVOLUTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["lfm3"],
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("head_dim", ConstValue::Number(128.0)),
            ("sliding_window", ConstValue::Number(256.0)),
            ("conv_L_cache", ConstValue::Number(7.0)),
        ],
        by_kind: ByKind::Ropes { turned: 0.5 },
        keys: &[DECODER_KEYS, KEYS],
        names: &[CONVOLUTION_NAMES, NAMES, COMMON_NAMES, QUERY_KEY_NORM_NAMES],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const LAYER_KINDS: &[(&str, LayerKind)] = &[
    ("full_attention", LayerKind::Attention),
    ("sliding_attention", LayerKind::Attention),
    ("conv", LayerKind::Recurrent),
];

const KEYS: &[ConfigKey] = &[
    required("norm_eps", KeyMapping::Float("attention.layer_norm_rms_epsilon")),
    required("conv_L_cache", KeyMapping::Integer("shortconv.l_cache")),
    required("sliding_window", KeyMapping::Integer("attention.sliding_window")),
    required("layer_types", KeyMapping::LayerKinds(LAYER_KINDS)),
    required("layer_types", KeyMapping::WindowsBeside("attention.sliding_window_pattern", "conv")),
    optional("use_sandwich_norm", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("use_attention_gate", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("attention_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("conv_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

const NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_gate", "model.layers.{}.self_attn.gate_proj"),
    ("blk.{}.post_attention_norm", "model.layers.{}.post_operator_norm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_ffn_norm"),
];
