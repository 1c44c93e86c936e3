//! OLMo 1: layer norms without weights, clamped queries, keys and values. OLMoE: RMS norms over all of the queries and all of the keys, a
//! mixture of experts whose weights are not made to sum up to one.
//!
//! Of OLMo llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, Norm, RopeKind,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, LAYER_NORM, PRE_NORM_NAMES,
        QUERY_KEY_NORM_NAMES, RMS, SILU, optional,
    },
    qwen3::EXPERT_NAMES,
    tensors::{ATTENTION, MIXTURE, NORMS, QUERY_KEY_NORMS},
};

pub const OLMO: Arch = Arch {
    name: "olmo",
    rope: Some(RopeKind::Interleaved),
    norm: Norm::Layer,
    unit_norms: &["blk.{}.attn_norm", "blk.{}.ffn_norm", "output_norm"],
    hugging_face: Some(&HuggingFace {
        model_types: &["olmo"],
        // transformers has it in its code.
        defaults: &[("layer_norm_eps", ConstValue::Number(1e-5))],
        keys: &[DECODER_KEYS, LAYER_NORM, &[SILU, CLAMP]],
        names: &[COMMON_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const OLMOE: Arch = Arch {
    name: "olmoe",
    norms_heads_together: true,
    normalizes_experts: false,
    layer_tensors: &[NORMS, ATTENTION, QUERY_KEY_NORMS],
    experts: &[MIXTURE],
    hugging_face: Some(&HuggingFace {
        model_types: &["olmoe"],
        keys: &[DECODER_KEYS, RMS, &[SILU], EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, EXPERT_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const CLAMP: ConfigKey = optional("clip_qkv", KeyMapping::Float("attention.clamp_kqv"));

const EXPERTS: &[ConfigKey] = &[
    optional("num_experts", KeyMapping::Integer("expert_count")),
    optional("num_local_experts", KeyMapping::Integer("expert_count")),
    optional("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    optional("norm_topk_prob", KeyMapping::Bool("expert_weights_norm")),
    // It clamps after the norms of queries and keys, unlike OLMo's.
    optional("clip_qkv", KeyMapping::AllowOnly(&[])),
];
