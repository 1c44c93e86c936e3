//! BitNet b1.58: like Llama, with a norm after attention and one before the last product of the feed-forward, whose gate is squared ReLU.
//! Published folders have ternary weights, four in a byte, and round the inputs of products to 8 bits (`model/hugging_face/ternary.rs`).
//!
//! Old GGUF files don't say which function the gate has; models before the published one had another.

use super::{
    Arch,
    hugging_face::{COMMON_NAMES, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, required},
    tensors::{ATTENTION, NORMS, SUB_NORM_OF_ATTENTION, SUB_NORM_OF_FEED_FORWARD},
};
use crate::tensor::ops::Activation;

pub const BITNET: Arch = Arch {
    name: "bitnet",
    activation: Activation::ReluSquared,
    names_activation: Some("relu2"),
    layer_tensors: &[NORMS, ATTENTION, SUB_NORM_OF_ATTENTION, SUB_NORM_OF_FEED_FORWARD],
    hugging_face: Some(&HuggingFace {
        model_types: &["bitnet"],
        defaults: &[("hidden_act", ConstValue::Text("relu2")), ("rope_theta", ConstValue::Number(500000.0))],
        keys: &[DECODER_KEYS, RMS, &[required("hidden_act", KeyMapping::Text("hidden_activation"))]],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, SUB_NORM_NAMES],
        quant_methods: &["bitnet"],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const SUB_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_sub_norm", "model.layers.{}.self_attn.attn_sub_norm"),
    ("blk.{}.ffn_sub_norm", "model.layers.{}.mlp.ffn_sub_norm"),
];
