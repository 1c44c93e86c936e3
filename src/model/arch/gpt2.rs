//! GPT-2: learned positions, layer norms, queries, keys and values in one matrix, a feed-forward without a gate, biases everywhere.
//!
//! transformers stores the matrices transposed; llama.cpp's converter transposes them back.

use super::{
    Arch, Norm, WeightTransform,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, POSITIONS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const GPT2: Arch = Arch {
    name: "gpt2",
    rope: None,
    norm: Norm::Layer,
    activation: Activation::GeluTanh,
    model_tensors: &[MODEL, MODEL_NORM_BIAS, POSITIONS],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["gpt2"],
        defaults: &[
            ("n_inner", ConstValue::MultipleOf(4, "n_embd")),
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("layer_norm_epsilon", ConstValue::Number(1e-5)),
        ],
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["transformer."],
        // The causal mask.
        ignored: &["h.{}.attn"],
        transforms: &[
            ("blk.{}.attn_qkv", WeightTransform::Transpose),
            ("blk.{}.attn_output", WeightTransform::Transpose),
            ("blk.{}.ffn_up", WeightTransform::Transpose),
            ("blk.{}.ffn_down", WeightTransform::Transpose),
        ],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("n_layer", KeyMapping::Integer("block_count")),
    required("n_embd", KeyMapping::Integer("embedding_length")),
    required("n_inner", KeyMapping::Integer("feed_forward_length")),
    required("n_head", KeyMapping::Integer("attention.head_count")),
    required("n_positions", KeyMapping::Integer("context_length")),
    required("layer_norm_epsilon", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    optional(
        "activation_function",
        KeyMapping::AllowOnly(&[ConstValue::Text("gelu_new"), ConstValue::Text("gelu_pytorch_tanh")]),
    ),
    optional("scale_attn_weights", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("scale_attn_by_inverse_layer_idx", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "wte"),
    ("position_embd", "wpe"),
    ("output_norm", "ln_f"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "h.{}.ln_1"),
    ("blk.{}.attn_qkv", "h.{}.attn.c_attn"),
    ("blk.{}.attn_output", "h.{}.attn.c_proj"),
    ("blk.{}.ffn_norm", "h.{}.ln_2"),
    ("blk.{}.ffn_up", "h.{}.mlp.c_fc"),
    ("blk.{}.ffn_down", "h.{}.mlp.c_proj"),
];
