//! StableLM (3B 4E1T, Zephyr) and StableLM 2: layer norms, rope on a part of a head. 1.6B has biases of queries, keys and values; 12B
//! norms each head's query and key and runs attention and feed-forward in parallel, on one normed input.

use super::{
    Arch, Norm,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, HuggingFace, KeyMapping, PRE_NORM_NAMES, SILU, optional, required,
    },
    tensors::{
        ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_OF_ATTENTION, NORMS_OF_EACH_HEAD, OPTIONAL_NORM_OF_FEED_FORWARD,
    },
};

pub const STABLELM: Arch = Arch {
    name: "stablelm",
    norm: Norm::Layer,
    parallel_without_norm: true,
    model_tensors: &[MODEL, MODEL_NORM_BIAS],
    layer_tensors: &[NORM_OF_ATTENTION, OPTIONAL_NORM_OF_FEED_FORWARD, ATTENTION, NORMS_OF_EACH_HEAD],
    hugging_face: Some(&HuggingFace {
        model_types: &["stablelm"],
        defaults: &[("partial_rotary_factor", ConstValue::Number(0.25)), ("rope_theta", ConstValue::Number(10000.0))],
        keys: &[KEYS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, HEAD_NORM_NAMES],
        partial_rope: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    optional("num_key_value_heads", KeyMapping::Integer("attention.head_count_kv")),
    required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    SILU,
];

const HEAD_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm.norms.{}"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm.norms.{}"),
];
