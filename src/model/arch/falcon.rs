//! Falcon: layer norms, attention and feed-forward side by side, on one norm (7B) or on one each (40B), one key and value for all heads or for
//! groups of them, a feed-forward without a gate. Folders have the queries, the key and the value of a group together.

use super::{
    Arch, GgufName, Norm,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, ROPE_FREQUENCIES, optional, required},
    tensors::{ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_OF_ATTENTION, OPTIONAL_NORM_OF_FEED_FORWARD, UNGATED},
};
use crate::tensor::ops::Activation;

pub const FALCON: Arch = Arch {
    name: "falcon",
    norm: Norm::Layer,
    activation: Activation::Gelu,
    parallel: Some(true),
    gguf_names: &[
        GgufName { theirs: "attn_norm", ours: "ffn_norm", beside: Some("attn_norm_2") },
        GgufName { theirs: "attn_norm_2", ours: "attn_norm", beside: None },
    ],
    model_tensors: &[MODEL, MODEL_NORM_BIAS],
    layer_tensors: &[NORM_OF_ATTENTION, OPTIONAL_NORM_OF_FEED_FORWARD, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["falcon"],
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("rope_theta", ConstValue::Number(10000.0)),
            ("hidden_size", ConstValue::Of("n_embed")),
            ("ffn_hidden_size", ConstValue::MultipleOf(4, "hidden_size")),
            ("max_position_embeddings", ConstValue::Number(2048.0)),
            ("multi_query", ConstValue::Bool(true)),
        ],
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["transformer."],
        ignored: ROPE_FREQUENCIES,
        groups_heads: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("ffn_hidden_size", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    // The first of two entries counts.
    optional("multi_query", KeyMapping::OneUnless("new_decoder_architecture", "attention.head_count_kv")),
    optional("num_kv_heads", KeyMapping::Integer("attention.head_count_kv")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("layer_norm_epsilon", KeyMapping::Float("attention.layer_norm_epsilon")),
    optional("activation", KeyMapping::AllowOnly(&[ConstValue::Text("gelu")])),
    optional("parallel_attn", KeyMapping::Bool("use_parallel_residual")),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "word_embeddings"),
    ("output_norm", "ln_f"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "h.{}.input_layernorm"),
    ("blk.{}.attn_norm", "h.{}.ln_attn"),
    ("blk.{}.ffn_norm", "h.{}.ln_mlp"),
    ("blk.{}.ffn_norm", "h.{}.post_attention_layernorm"),
    ("blk.{}.attn_qkv", "h.{}.self_attention.query_key_value"),
    ("blk.{}.attn_output", "h.{}.self_attention.dense"),
    ("blk.{}.ffn_up", "h.{}.mlp.dense_h_to_4h"),
    ("blk.{}.ffn_down", "h.{}.mlp.dense_4h_to_h"),
];
