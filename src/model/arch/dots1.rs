//! dots.llm1: attention as in Qwen3, and the experts of DeepSeek-V3.

use super::{
    Arch,
    deepseek::{EXPERTS, ROUTING},
    ernie::SHARED_EXPERT_NAMES,
    hugging_face::{
        COMMON_NAMES, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, RMS,
        ROUTER_CORRECTION_NAME, SILU, optional,
    },
    qwen3::EXPERT_NAMES,
    tensors::{ATTENTION, HEAD_NORMS, MIXTURE, NORMS, OPTIONAL_ROUTER_CORRECTION, SHARED_EXPERT},
};
use crate::tensor::ops::Gating;

pub const DOTS1: Arch = Arch {
    name: "dots1",
    gating: Gating::Sigmoid,
    groups_experts: true,
    normalizes_experts: false,
    layer_tensors: &[NORMS, ATTENTION, HEAD_NORMS],
    experts: &[MIXTURE, SHARED_EXPERT, OPTIONAL_ROUTER_CORRECTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["dots1"],
        defaults: &[
            ("rope_theta", ConstValue::Number(10000.0)),
            ("routed_scaling_factor", ConstValue::Number(1.0)),
            ("norm_topk_prob", ConstValue::Bool(false)),
            ("n_group", ConstValue::Number(1.0)),
            ("topk_group", ConstValue::Number(1.0)),
            ("sliding_window", ConstValue::Number(4096.0)),
            ("max_window_layers", ConstValue::Number(62.0)),
        ],
        keys: &[
            DECODER_KEYS,
            RMS,
            &[SILU],
            EXPERTS,
            ROUTING,
            &[
                // The method's name stands there.
                optional(
                    "scoring_func",
                    KeyMapping::AllowOnly(&[ConstValue::Text("noaux_tc"), ConstValue::Text("sigmoid")]),
                ),
                optional("sliding_window", KeyMapping::Integer("attention.sliding_window")),
                optional("layer_types", KeyMapping::Windows("attention.sliding_window_pattern")),
                optional("max_window_layers", KeyMapping::LateWindows("attention.sliding_window_pattern")),
            ],
        ],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, EXPERT_NAMES, SHARED_EXPERT_NAMES],
        whole_names: &[ROUTER_CORRECTION_NAME],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};
