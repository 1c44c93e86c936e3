//! Arcee (AFM): like Llama, with a feed-forward without a gate whose function is the square of ReLU.
//!
//! llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, RopeKind,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, RMS, optional},
    tensors::UNGATED,
};
use crate::tensor::ops::Activation;

pub const ARCEE: Arch = Arch {
    name: "arcee",
    rope: Some(RopeKind::Interleaved),
    activation: Activation::ReluSquared,
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["arcee"],
        keys: &[DECODER_KEYS, RMS, &[RELU_SQUARED]],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub(super) const RELU_SQUARED: ConfigKey = optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("relu2")]));
