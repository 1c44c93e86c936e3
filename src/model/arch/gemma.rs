//! Gemma 1: like Llama, with GeGLU and embeddings scaled by their width. Gemma 2 and 3 (text): norms before and after attention and
//! feed-forward as well, and layers with a window between layers with full attention. Gemma 2 caps the scores of attention and the logits;
//! Gemma 3 norms the heads' queries and keys instead, and the layers with a window have a rope of their own.
//!
//! llama.cpp's converter adds one to the weights of all norms, because transformers multiplies by 1 + w. The values that the converter
//! leaves out (the scale of attention, the pattern of layers) are in llama.cpp's `models/gemma2.cpp` and `gemma3.cpp`.

use super::{
    Arch, WeightTransform, WindowPattern, WindowRope,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, GELU_TANH, HuggingFace, KeyMapping, POST_NORM_NAMES,
        PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, RMS, optional, required,
    },
    tensors::{ATTENTION, FINAL_NORM, HEAD_NORMS, NORMS, POST_NORMS, TOKENS},
};
use crate::tensor::ops::Activation;

pub const GEMMA: Arch = Arch {
    name: "gemma",
    activation: Activation::GeluTanh,
    scales_embedding: true,
    hugging_face: Some(&HuggingFace {
        model_types: &["gemma"],
        defaults: &[("tie_word_embeddings", ConstValue::Bool(true))],
        keys: &[DECODER_KEYS, RMS, &[GELU_TANH, OLD_GELU]],
        names: &[COMMON_NAMES, PRE_NORM_NAMES],
        transforms: NORMS_OF_ONE_AND_MORE,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const GEMMA2: Arch = Arch {
    name: "gemma2",
    activation: Activation::GeluTanh,
    window: WindowPattern::AllButEvery(2),
    default_window: Some(4096),
    // 27B
    attention_by_width_at: Some(46),
    scales_embedding: true,
    default_softcaps: [Some(50.0), Some(30.0)],
    layer_tensors: &[NORMS, POST_NORMS, ATTENTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["gemma2"],
        keys: &[DECODER_KEYS, RMS, &[GELU_TANH, SCALE], WINDOWS, SOFTCAPS],
        names: &[COMMON_NAMES, POST_NORM_NAMES],
        transforms: NORMS_OF_ONE_AND_MORE,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const GEMMA3: Arch = Arch {
    name: "gemma3",
    activation: Activation::GeluTanh,
    window: WindowPattern::AllButEvery(6),
    window_rope: Some(WindowRope { default_theta: Some(10000.0) }),
    // 27B
    attention_by_width_at: Some(62),
    scales_embedding: true,
    layer_tensors: &[NORMS, POST_NORMS, ATTENTION, HEAD_NORMS],
    hugging_face: Some(&HuggingFace {
        model_types: &["gemma3_text"],
        // Configurations of the multimodal models leave most of these out.
        defaults: &[
            ("num_attention_heads", ConstValue::Number(8.0)),
            ("num_key_value_heads", ConstValue::Number(4.0)),
            ("head_dim", ConstValue::Number(256.0)),
            ("rms_norm_eps", ConstValue::Number(1e-6)),
            ("max_position_embeddings", ConstValue::Number(131072.0)),
            ("vocab_size", ConstValue::Number(262208.0)),
            ("rope_theta", ConstValue::Number(1e6)),
            ("query_pre_attn_scalar", ConstValue::Number(256.0)),
            ("sliding_window", ConstValue::Number(4096.0)),
        ],
        keys: &[DECODER_KEYS, RMS, &[GELU_TANH, SCALE], WINDOWS, GEMMA3_KEYS],
        names: &[COMMON_NAMES, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES],
        prefixes: &["language_model."],
        other_parts: &["vision_tower.", "multi_modal_projector."],
        text_part_of: &["gemma3"],
        transforms: NORMS_OF_ONE_AND_MORE,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

/// EmbeddingGemma: Gemma 3 whose tokens attend to both sides.
pub const GEMMA_EMBEDDING: Arch = Arch {
    name: "gemma-embedding",
    is_encoder: true,
    attention_by_width_at: None,
    model_tensors: &[TOKENS, FINAL_NORM],
    classifier: None,
    hugging_face: Some(&HuggingFace {
        model_types: &["gemma3_text"],
        selected_by: Some(("use_bidirectional_attention", ConstValue::Bool(true))),
        defaults: &[("sliding_window", ConstValue::Number(4096.0))],
        keys: &[DECODER_KEYS, RMS, &[GELU_TANH, SCALE], WINDOWS, PATTERN],
        names: &[COMMON_NAMES, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES],
        other_parts: &["lm_head."],
        classifier: None,
        transforms: NORMS_OF_ONE_AND_MORE,
        ..HuggingFace::DECODER
    }),
    ..GEMMA3
};

/// The first files say "gelu" and mean the tanh approximation, as transformers takes it.
const OLD_GELU: ConfigKey = optional(
    "hidden_act",
    KeyMapping::AllowOnly(&[
        ConstValue::Text("gelu"),
        ConstValue::Text("gelu_pytorch_tanh"),
        ConstValue::Text("gelu_new"),
    ]),
);

const SCALE: ConfigKey = required("query_pre_attn_scalar", KeyMapping::InverseSqrt("attention.scale"));

/// Null is none. Without the keys, the caps are the architecture's.
const SOFTCAPS: &[ConfigKey] = &[
    optional("attn_logit_softcapping", KeyMapping::NumberOrNone("attn_logit_softcapping")),
    optional("final_logit_softcapping", KeyMapping::NumberOrNone("final_logit_softcapping")),
];

const WINDOWS: &[ConfigKey] = &[
    optional("sliding_window", KeyMapping::NumberOrNone("attention.sliding_window")),
    optional("layer_types", KeyMapping::Windows("attention.sliding_window_pattern")),
];

/// `attn_logit_softcapping` is ignored, as transformers does.
const GEMMA3_KEYS: &[ConfigKey] = &[
    optional("sliding_window_pattern", KeyMapping::Integer("attention.sliding_window_pattern")),
    optional("final_logit_softcapping", KeyMapping::NumberOrNone("final_logit_softcapping")),
];

const PATTERN: &[ConfigKey] =
    &[optional("sliding_window_pattern", KeyMapping::Integer("attention.sliding_window_pattern"))];

const NORMS_OF_ONE_AND_MORE: &[(&str, WeightTransform)] = &[
    ("output_norm", WeightTransform::AddOne),
    ("blk.{}.attn_norm", WeightTransform::AddOne),
    ("blk.{}.ffn_norm", WeightTransform::AddOne),
    ("blk.{}.post_attention_norm", WeightTransform::AddOne),
    ("blk.{}.post_ffw_norm", WeightTransform::AddOne),
    ("blk.{}.attn_q_norm", WeightTransform::AddOne),
    ("blk.{}.attn_k_norm", WeightTransform::AddOne),
];
