//! gpt-oss: a mixture of experts in each layer, whose gated unit is clamped; a learned sink for each head of attention; a window in every
//! other layer; biases everywhere; YaRN. Folders hold the experts in MXFP4.

use super::{
    Arch, NORM_AFTER_ATTENTION, WindowPattern,
    hugging_face::{
        COMMON_NAMES, ConfigKey, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, SILU, WINDOW, optional,
        required,
    },
    tensors::{ATTENTION, MIXTURE_WITH_BIASES, NORMS, SINKS},
};

pub const GPT_OSS: Arch = Arch {
    name: "gpt-oss",
    window: WindowPattern::AllButEvery(2),
    rounds_yarn: false,
    clamped_swiglu: Some([1.702, 7.0]),
    gguf_names: NORM_AFTER_ATTENTION,
    layer_tensors: &[NORMS, ATTENTION, SINKS],
    experts: &[MIXTURE_WITH_BIASES],
    hugging_face: Some(&HuggingFace {
        model_types: &["gpt_oss"],
        keys: &[DECODER_KEYS, RMS, &[SILU], WINDOW, EXPERTS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, ROUTER_NAME],
        whole_names: &[WHOLE_NAMES],
        quant_methods: &["mxfp4"],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const EXPERTS: &[ConfigKey] = &[
    required("num_local_experts", KeyMapping::Integer("expert_count")),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    optional("swiglu_alpha", KeyMapping::Float("swiglu_alpha")),
    optional("swiglu_limit", KeyMapping::Float("swiglu_limit")),
];

const ROUTER_NAME: &[(&str, &str)] = &[("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router")];

const WHOLE_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"),
    ("blk.{}.ffn_gate_up_exps.mxfp4_blocks", "model.layers.{}.mlp.experts.gate_up_proj_blocks"),
    ("blk.{}.ffn_gate_up_exps.mxfp4_scales", "model.layers.{}.mlp.experts.gate_up_proj_scales"),
    ("blk.{}.ffn_gate_up_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias"),
    ("blk.{}.ffn_down_exps.mxfp4_blocks", "model.layers.{}.mlp.experts.down_proj_blocks"),
    ("blk.{}.ffn_down_exps.mxfp4_scales", "model.layers.{}.mlp.experts.down_proj_scales"),
    ("blk.{}.ffn_down_exps.bias", "model.layers.{}.mlp.experts.down_proj_bias"),
];
