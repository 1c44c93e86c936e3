//! StarCoder2: layer norms, a feed-forward without a gate, a window, biases everywhere.

use super::{
    Arch, Norm,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, WINDOW, optional,
        required,
    },
    tensors::{ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const STARCODER2: Arch = Arch {
    name: "starcoder2",
    norm: Norm::Layer,
    activation: Activation::GeluTanh,
    model_tensors: &[MODEL, MODEL_NORM_BIAS],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["starcoder2"],
        defaults: &[("tie_word_embeddings", ConstValue::Bool(true))],
        keys: &[DECODER_KEYS, WINDOW, KEYS],
        names: &[FEED_FORWARD_NAMES, COMMON_NAMES, PRE_NORM_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("norm_epsilon", KeyMapping::Float("attention.layer_norm_epsilon")),
    optional(
        "hidden_act",
        KeyMapping::AllowOnly(&[ConstValue::Text("gelu_pytorch_tanh"), ConstValue::Text("gelu_new")]),
    ),
];

const FEED_FORWARD_NAMES: &[(&str, &str)] =
    &[("blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"), ("blk.{}.ffn_down", "model.layers.{}.mlp.c_proj")];
