//! Command R (Cohere) and Command R7B (Cohere 2): layer norms without biases, attention and feed-forward side by side on one normed input,
//! rope on neighbours, scaled logits. Cohere 2 has a window in all layers but every fourth, which has no rope.

use super::{
    Arch, Norm, RopeKind, WindowPattern,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, LAYER_NORM, QUERY_KEY_NORM_NAMES,
        SILU, WINDOW, required,
    },
    tensors::{ATTENTION, ATTENTION_NORM, NORMS_OF_EACH_HEAD},
};

pub const COHERE: Arch = Arch {
    name: "command-r",
    rope: Some(RopeKind::Interleaved),
    norm: Norm::Layer,
    parallel_without_norm: true,
    multiplies_logits: true,
    layer_tensors: &[ATTENTION_NORM, ATTENTION, NORMS_OF_EACH_HEAD],
    hugging_face: Some(&HuggingFace {
        model_types: &["cohere"],
        rope: RopeKind::Interleaved,
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("rope_theta", ConstValue::Number(500000.0)),
            ("logit_scale", ConstValue::Number(0.0625)),
        ],
        keys: &[DECODER_KEYS, LAYER_NORM, &[SILU, LOGITS]],
        names: &[COMMON_NAMES, QUERY_KEY_NORM_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const COHERE2: Arch = Arch {
    name: "cohere2",
    window: WindowPattern::AllButEvery(4),
    rope_with_window_only: true,
    layer_tensors: &[ATTENTION_NORM, ATTENTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["cohere2"],
        rope: RopeKind::Interleaved,
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("rope_theta", ConstValue::Number(10000.0)),
            ("logit_scale", ConstValue::Number(0.0625)),
        ],
        keys: &[DECODER_KEYS, LAYER_NORM, &[SILU, LOGITS], WINDOW],
        names: &[COMMON_NAMES],
        ..HuggingFace::DECODER
    }),
    ..COHERE
};

const LOGITS: ConfigKey = required("logit_scale", KeyMapping::Float("logit_scale"));
