//! OPT: learned positions, of which the first two rows are not used, layer norms, a feed-forward without a gate, biases everywhere. llama.cpp
//! knows no such files.

use super::{
    Arch, Norm,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, POSITIONS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const OPT: Arch = Arch {
    name: "opt",
    rope: None,
    norm: Norm::Layer,
    activation: Activation::Relu,
    model_tensors: &[MODEL, MODEL_NORM_BIAS, POSITIONS],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["opt"],
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            // transformers has it in its code.
            ("layer_norm_eps", ConstValue::Number(1e-5)),
        ],
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["model."],
        first_position: 2,
        counts_first_positions: false,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("ffn_dim", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    optional("activation_function", KeyMapping::AllowOnly(&[ConstValue::Text("relu")])),
    // Of OPT-350m alone, which has projections around its layers besides.
    optional("do_layer_norm_before", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("_remove_final_layer_norm", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("layer_norm_elementwise_affine", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "decoder.embed_tokens"),
    ("position_embd", "decoder.embed_positions"),
    ("output_norm", "decoder.final_layer_norm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "decoder.layers.{}.self_attn_layer_norm"),
    ("blk.{}.attn_q", "decoder.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "decoder.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "decoder.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "decoder.layers.{}.self_attn.out_proj"),
    ("blk.{}.ffn_norm", "decoder.layers.{}.final_layer_norm"),
    ("blk.{}.ffn_up", "decoder.layers.{}.fc1"),
    ("blk.{}.ffn_down", "decoder.layers.{}.fc2"),
];
