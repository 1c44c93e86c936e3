//! Qwen3-Next and Qwen3.5 (dense, and with experts): three of four layers are gated delta nets, which keep a state of fixed size, and the
//! fourth has attention with an output gate, norms of heads, and rope on a part of each head. Experts come with one that all tokens use.
//!
//! Of multimodal models only the text part runs. Its interleaved mRoPE (`mrope_section`) turns each pair by one of three positions, which
//! are equal for text: it is ordinary rope then.
//!
//! llama.cpp's converter adds one to the weights of all norms except that of the delta net, stores −exp(A_log), and for Qwen3.5 orders the
//! heads of values anew (`RecurrenceKind::DeltaNet`).

use super::{
    Arch, GgufName, LayerKind, LayerPattern, PieceRows, RecurrenceKind, RowSplit, WeightTransform,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, MTP_NAMES, PRE_NORM_NAMES,
        QUERY_KEY_NORM_NAMES, RMS, SILU, optional, required,
    },
    qwen2_moe::{SHARED, SHARED_NAMES},
    qwen3::{EXPERT_NAMES, EXPERTS},
    tensors::{
        DELTA_NET, GATED, GATED_ATTENTION, HEAD_NORMS, MIXTURE_IN_ONE, NORMS, SHARED_EXPERT, SHARED_EXPERT_GATE,
    },
};

pub const QWEN3_NEXT: Arch = Arch {
    name: "qwen3next",
    layers: LayerPattern::Interval,
    recurrence: Some(RecurrenceKind::DeltaNet { tiled: false }),
    layer_tensors: &[NORMS],
    attention_tensors: &[GATED_ATTENTION, HEAD_NORMS],
    recurrent_tensors: &[DELTA_NET],
    feed_forward: &[],
    experts: &[MIXTURE_IN_ONE, SHARED_EXPERT, SHARED_EXPERT_GATE],
    row_splits: &[GATED_QUERIES, JOINED_DELTA_INPUTS, JOINED_DELTA_RATES],
    predicts_further: true,
    gguf_names: GGUF_NAMES,
    hugging_face: Some(&HuggingFace { model_types: &["qwen3_next"], defaults: DEFAULTS, ..FORM }),
    ..Arch::DECODER
};

pub const QWEN35: Arch = Arch {
    name: "qwen35",
    recurrence: Some(RecurrenceKind::DeltaNet { tiled: true }),
    feed_forward: GATED,
    experts: &[],
    row_splits: &[GATED_QUERIES],
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen3_5_text"],
        defaults: DEFAULTS,
        keys: &[DECODER_KEYS, RMS, &[SILU], DELTA_KEYS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, MTP_NAMES, DELTA_NAMES],
        moved: TEXT_PART,
        text_part_of: &["qwen3_5"],
        ..FORM
    }),
    ..QWEN3_NEXT
};

pub const QWEN35_MOE: Arch = Arch {
    name: "qwen35moe",
    feed_forward: &[],
    experts: &[MIXTURE_IN_ONE, SHARED_EXPERT, SHARED_EXPERT_GATE],
    row_splits: &[GATED_QUERIES],
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen3_5_moe_text"],
        moved: TEXT_PART,
        text_part_of: &["qwen3_5_moe"],
        ..FORM
    }),
    ..QWEN35
};

/// What their folders share; those without experts have shorter tables.
const FORM: HuggingFace = HuggingFace {
    defaults: MOE_DEFAULTS,
    keys: &[DECODER_KEYS, RMS, &[SILU], DELTA_KEYS, EXPERTS, SHARED],
    names: &[COMMON_NAMES, PRE_NORM_NAMES, QUERY_KEY_NORM_NAMES, MTP_NAMES, DELTA_NAMES, EXPERT_NAMES, SHARED_NAMES],
    whole_names: &[WHOLE_NAMES],
    partial_rope: true,
    predicts_under: &["mtp.", "model.mtp."],
    other_parts: OTHER_PARTS,
    transforms: TRANSFORMS,
    ..HuggingFace::DECODER
};

/// Each head's query, then its gate.
const GATED_QUERIES: RowSplit = RowSplit {
    whole: "attn_q",
    groups: Some("attention.head_count"),
    pieces: &[("attn_q", PieceRows::Share), ("attn_gate", PieceRows::Share)],
    stacks: false,
};

/// For each head of keys: its query, its key, then values and gates of the heads that share it.
const JOINED_DELTA_INPUTS: RowSplit = RowSplit {
    whole: "ssm_qkvz",
    groups: Some("ssm.group_count"),
    pieces: &[
        ("ssm_qkv", PieceRows::Key("ssm.state_size")),
        ("ssm_qkv", PieceRows::Key("ssm.state_size")),
        ("ssm_qkv", PieceRows::Share),
        ("ssm_gate", PieceRows::Share),
    ],
    stacks: false,
};

/// For each head of keys: β, then α, of the heads that share it.
const JOINED_DELTA_RATES: RowSplit = RowSplit {
    whole: "ssm_ba",
    groups: Some("ssm.group_count"),
    pieces: &[("ssm_beta", PieceRows::Share), ("ssm_alpha", PieceRows::Share)],
    stacks: false,
};

/// `ssm_in` is of old files. In layers with attention `attn_gate` is ours.
const GGUF_NAMES: &[GgufName] = &[
    GgufName { theirs: "post_attention_norm", ours: "ffn_norm", beside: None },
    GgufName { theirs: "attn_qkv", ours: "ssm_qkv", beside: Some("ssm_conv1d") },
    GgufName { theirs: "attn_gate", ours: "ssm_gate", beside: Some("ssm_conv1d") },
    GgufName { theirs: "ssm_in", ours: "ssm_qkvz", beside: None },
];

/// The vision model.
const OTHER_PARTS: &[&str] = &["model.visual.", "visual."];

const TEXT_PART: &[(&str, &str)] = &[("model.language_model.", "model.")];

/// Those of all, after one of models with experts.
const DEFAULTS: &[(&str, ConstValue)] = MOE_DEFAULTS.split_at(1).1;

/// Nothing uses the width of a feed-forward that no layer has.
const MOE_DEFAULTS: &[(&str, ConstValue)] = &[
    ("intermediate_size", ConstValue::MultipleOf(1, "moe_intermediate_size")),
    ("head_dim", ConstValue::Number(256.0)),
    ("rms_norm_eps", ConstValue::Number(1e-6)),
    ("rope_theta", ConstValue::Number(10000.0)),
    ("partial_rotary_factor", ConstValue::Number(0.25)),
    ("linear_conv_kernel_dim", ConstValue::Number(4.0)),
    ("linear_key_head_dim", ConstValue::Number(128.0)),
    ("linear_value_head_dim", ConstValue::Number(128.0)),
    ("linear_num_key_heads", ConstValue::Number(16.0)),
    ("linear_num_value_heads", ConstValue::Number(32.0)),
    ("norm_topk_prob", ConstValue::Bool(true)),
];

const LAYER_KINDS: &[(&str, LayerKind)] =
    &[("full_attention", LayerKind::Attention), ("linear_attention", LayerKind::Recurrent)];

const DELTA_KEYS: &[ConfigKey] = &[
    required("linear_conv_kernel_dim", KeyMapping::Integer("ssm.conv_kernel")),
    required("linear_key_head_dim", KeyMapping::Integer("ssm.state_size")),
    required("linear_num_key_heads", KeyMapping::Integer("ssm.group_count")),
    required("linear_num_value_heads", KeyMapping::Integer("ssm.time_step_rank")),
    required("linear_value_head_dim", KeyMapping::Integer("ssm.value_length")),
    optional("full_attention_interval", KeyMapping::Integer("full_attention_interval")),
    optional("layer_types", KeyMapping::LayerKinds(LAYER_KINDS)),
    optional("attention_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("attn_output_gate", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
];

const DELTA_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ssm_qkvz", "model.layers.{}.linear_attn.in_proj_qkvz"),
    ("blk.{}.ssm_ba", "model.layers.{}.linear_attn.in_proj_ba"),
    ("blk.{}.ssm_qkv", "model.layers.{}.linear_attn.in_proj_qkv"),
    ("blk.{}.ssm_gate", "model.layers.{}.linear_attn.in_proj_z"),
    ("blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b"),
    ("blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"),
    ("blk.{}.ssm_conv1d", "model.layers.{}.linear_attn.conv1d"),
    ("blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"),
    ("blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"),
];

const WHOLE_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log"),
    ("blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias"),
    ("blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj"),
    ("blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_proj"),
];

const TRANSFORMS: &[(&str, WeightTransform)] = &[
    ("output_norm", WeightTransform::AddOne),
    ("blk.{}.attn_norm", WeightTransform::AddOne),
    ("blk.{}.ffn_norm", WeightTransform::AddOne),
    ("blk.{}.nextn.enorm", WeightTransform::AddOne),
    ("blk.{}.nextn.hnorm", WeightTransform::AddOne),
    ("blk.{}.nextn.shared_head_norm", WeightTransform::AddOne),
    ("blk.{}.attn_q_norm", WeightTransform::AddOne),
    ("blk.{}.attn_k_norm", WeightTransform::AddOne),
    ("blk.{}.ssm_conv1d", WeightTransform::Squeeze),
    ("blk.{}.ssm_a", WeightTransform::NegativeExp),
];
