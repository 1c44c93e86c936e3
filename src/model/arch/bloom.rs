//! Bloom: no positions but ALiBi, a norm of the embedding, layer norms, a feed-forward without a gate, biases everywhere. Folders have each
//! head's query, key and value together.

use super::{
    Arch, Norm,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, EMBEDDING_NORM, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const BLOOM: Arch = Arch {
    name: "bloom",
    rope: None,
    norm: Norm::Layer,
    activation: Activation::GeluTanh,
    default_alibi: Some(8.0),
    model_tensors: &[MODEL, MODEL_NORM_BIAS, EMBEDDING_NORM],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["bloom"],
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("hidden_size", ConstValue::Of("n_embed")),
            ("n_layer", ConstValue::Of("num_hidden_layers")),
            ("n_head", ConstValue::Of("num_attention_heads")),
            ("intermediate_size", ConstValue::MultipleOf(4, "hidden_size")),
            // What the models were trained with; ALiBi has no end of its own.
            ("seq_length", ConstValue::Number(2048.0)),
        ],
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["transformer."],
        groups_heads: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("n_layer", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("n_head", KeyMapping::Integer("attention.head_count")),
    required("seq_length", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("layer_norm_epsilon", KeyMapping::Float("attention.layer_norm_epsilon")),
    optional("apply_residual_connection_post_layernorm", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "word_embeddings"),
    ("token_embd_norm", "word_embeddings_layernorm"),
    ("output_norm", "ln_f"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "h.{}.input_layernorm"),
    ("blk.{}.attn_qkv", "h.{}.self_attention.query_key_value"),
    ("blk.{}.attn_output", "h.{}.self_attention.dense"),
    ("blk.{}.ffn_norm", "h.{}.post_attention_layernorm"),
    ("blk.{}.ffn_up", "h.{}.mlp.dense_h_to_4h"),
    ("blk.{}.ffn_down", "h.{}.mlp.dense_4h_to_h"),
];
