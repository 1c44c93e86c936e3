//! Nemotron (Minitron): layer norms that multiply by 1 + w, a feed-forward without a gate whose function is the square of ReLU, rope on a part of
//! each head.

use super::{
    Arch, Norm, WeightTransform,
    arcee::RELU_SQUARED,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, required},
    tensors::{ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const NEMOTRON: Arch = Arch {
    name: "nemotron",
    norm: Norm::Layer,
    activation: Activation::ReluSquared,
    model_tensors: &[MODEL, MODEL_NORM_BIAS],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["nemotron"],
        defaults: &[("partial_rotary_factor", ConstValue::Number(0.5)), ("rope_theta", ConstValue::Number(10000.0))],
        keys: &[DECODER_KEYS, &[RELU_SQUARED, EPSILON]],
        transforms: &[
            ("output_norm", WeightTransform::AddOne),
            ("blk.{}.attn_norm", WeightTransform::AddOne),
            ("blk.{}.ffn_norm", WeightTransform::AddOne),
        ],
        partial_rope: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const EPSILON: ConfigKey = required("norm_eps", KeyMapping::Float("attention.layer_norm_epsilon"));
