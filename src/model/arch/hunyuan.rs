//! Hunyuan dense and MoE: like Llama, with norms of each head's query and key after rope. The models of experts have one besides that every
//! token uses.

use super::{
    Arch,
    hugging_face::{
        COMMON_NAMES, ConfigKey, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, SILU, required,
    },
    tensors::{ATTENTION, HEAD_NORMS, MIXTURE, NORMS, SHARED_EXPERT},
};

pub const HUNYUAN_DENSE: Arch = Arch {
    name: "hunyuan-dense",
    norms_heads_after_rope: true,
    layer_tensors: &[NORMS, ATTENTION, HEAD_NORMS],
    hugging_face: Some(&HuggingFace {
        model_types: &["hunyuan_v1_dense"],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, HEAD_NORM_NAMES],
        rope_alpha: true,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const HUNYUAN_MOE: Arch = Arch {
    name: "hunyuan-moe",
    experts: &[MIXTURE, SHARED_EXPERT],
    hugging_face: Some(&HuggingFace {
        model_types: &["hunyuan_v1_moe"],
        keys: &[DECODER_KEYS, RMS, &[SILU], EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, HEAD_NORM_NAMES, EXPERT_NAMES],
        rope_alpha: true,
        ..HuggingFace::DECODER
    }),
    ..HUNYUAN_DENSE
};

/// Lists of a number for each layer are taken if all are equal.
const EXPERTS: &[ConfigKey] = &[
    required("num_experts", KeyMapping::Integer("expert_count")),
    required("moe_topk", KeyMapping::Integer("expert_used_count")),
];

const HEAD_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.query_layernorm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.key_layernorm"),
];

const EXPERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate.wg"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_mlp.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_mlp.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_mlp.down_proj"),
];
