//! GPT-NeoX and Pythia: layer norms, attention and feed-forward side by side, each on a norm of its own, rope on a part of each head, biases
//! everywhere. Folders have each head's query, key and value together.

use super::{
    Arch, Norm,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, LAYER_NORM, optional},
    tensors::{ATTENTION, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const GPTNEOX: Arch = Arch {
    name: "gptneox",
    norm: Norm::Layer,
    activation: Activation::Gelu,
    parallel: Some(true),
    model_tensors: &[MODEL, MODEL_NORM_BIAS],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["gpt_neox"],
        // Older files have other keys for these two.
        defaults: &[
            ("partial_rotary_factor", ConstValue::Of("rotary_pct")),
            ("partial_rotary_factor", ConstValue::Number(0.25)),
            ("rope_theta", ConstValue::Of("rotary_emb_base")),
        ],
        keys: &[DECODER_KEYS, LAYER_NORM, SWITCHES],
        names: &[NAMES],
        // The causal mask, and the frequencies of rope.
        ignored: &["gpt_neox.layers.{}.attention", "gpt_neox.layers.{}.attention.rotary_emb"],
        groups_heads: true,
        partial_rope: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const SWITCHES: &[ConfigKey] = &[
    optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("gelu")])),
    optional("use_parallel_residual", KeyMapping::Bool("use_parallel_residual")),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "gpt_neox.embed_in"),
    ("output_norm", "gpt_neox.final_layer_norm"),
    ("output", "embed_out"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"),
    ("blk.{}.attn_qkv", "gpt_neox.layers.{}.attention.query_key_value"),
    ("blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"),
    ("blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"),
    ("blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"),
];
