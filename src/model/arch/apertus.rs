//! Apertus: like Llama, with a feed-forward without a gate, whose function xIELU has numbers of each layer, and norms of each head's query
//! and key.

use super::{
    Arch,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, QUERY_KEY_NORM_NAMES, RMS, optional,
    },
    tensors::{ATTENTION, HEAD_NORMS, NORMS, UNGATED, XIELU},
};

pub const APERTUS: Arch = Arch {
    name: "apertus",
    layer_tensors: &[NORMS, ATTENTION, HEAD_NORMS, XIELU],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["apertus"],
        keys: &[DECODER_KEYS, RMS, &[ACTIVATION]],
        names: &[COMMON_NAMES, NAMES, QUERY_KEY_NORM_NAMES],
        whole_names: &[WHOLE_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const ACTIVATION: ConfigKey = optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("xielu")]));

const NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_norm", "model.layers.{}.attention_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.feedforward_layernorm"),
];

const WHOLE_NAMES: &[(&str, &str)] = &[
    ("blk.{}.xielu_alpha_p.weight", "model.layers.{}.mlp.act_fn.alpha_p"),
    ("blk.{}.xielu_alpha_n.weight", "model.layers.{}.mlp.act_fn.alpha_n"),
    ("blk.{}.xielu_beta.weight", "model.layers.{}.mlp.act_fn.beta"),
    ("blk.{}.xielu_eps.weight", "model.layers.{}.mlp.act_fn.eps"),
];
