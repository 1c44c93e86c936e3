//! Qwen3: like Llama, with an RMS norm of each head's query and key before rope; heads may be wider than the embedding. Qwen3-MoE: the same
//! with a mixture of experts in each layer.

use super::{
    Arch,
    hugging_face::{
        COMMON_NAMES, ConfigKey, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, RMS,
        SILU, optional, required,
    },
    qwen2::LATE_WINDOWS,
    tensors::{ATTENTION, HEAD_NORMS, MIXTURE, NORMS},
};

pub const QWEN3: Arch = Arch {
    name: "qwen3",
    layer_tensors: &[NORMS, ATTENTION, HEAD_NORMS],
    rerank_prompt: Some(RERANKER),
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen3"],
        keys: &[DECODER_KEYS, RMS, &[SILU], LATE_WINDOWS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const QWEN3_MOE: Arch = Arch {
    name: "qwen3moe",
    experts: &[MIXTURE],
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen3_moe"],
        keys: &[DECODER_KEYS, RMS, &[SILU], LATE_WINDOWS, EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, EXPERT_NAMES],
        ..HuggingFace::DECODER
    }),
    ..QWEN3
};

/// As Qwen3-Reranker was trained to be asked (its model card).
const RERANKER: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct \
    provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, \
    retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n\
    <think>\n\n</think>\n\n";

pub(super) const EXPERTS: &[ConfigKey] = &[
    // transformers renamed this key in version 5.
    optional("num_experts", KeyMapping::Integer("expert_count")),
    optional("num_local_experts", KeyMapping::Integer("expert_count")),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    required("moe_intermediate_size", KeyMapping::Integer("expert_feed_forward_length")),
    required("norm_topk_prob", KeyMapping::Bool("expert_weights_norm")),
];

pub(super) const EXPERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"),
];
