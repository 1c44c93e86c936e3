//! Phi-1, 1.5 and 2: layer norms, attention and feed-forward side by side on one normed input, rope on a part of each head, biases
//! everywhere, on the logits too.

use super::{
    Arch, Norm,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, LAYER_NORM, optional},
    tensors::{ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_OF_ATTENTION, OUTPUT_BIAS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const PHI2: Arch = Arch {
    name: "phi2",
    norm: Norm::Layer,
    activation: Activation::GeluTanh,
    parallel_without_norm: true,
    model_tensors: &[MODEL, MODEL_NORM_BIAS, OUTPUT_BIAS],
    layer_tensors: &[NORM_OF_ATTENTION, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["phi"],
        defaults: &[("partial_rotary_factor", ConstValue::Number(0.5)), ("rope_theta", ConstValue::Number(10000.0))],
        keys: &[DECODER_KEYS, LAYER_NORM, SWITCHES],
        names: &[NAMES],
        partial_rope: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const SWITCHES: &[ConfigKey] = &[
    optional(
        "hidden_act",
        KeyMapping::AllowOnly(&[ConstValue::Text("gelu_new"), ConstValue::Text("gelu_pytorch_tanh")]),
    ),
    optional("qk_layernorm", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.final_layernorm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.dense"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.fc1"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.fc2"),
];
