//! Granite 4: like Granite, with layers that are Mamba-2 mixers and a few with attention, or with attention in all; dense, or with experts and
//! one that every token uses. Rope is there or not.
//!
//! llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, LayerKind, LayerPattern, PieceRows, RecurrenceKind, RowSplit,
    granite::{EXPERT_NAMES, GRANITE, SCALES},
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, SILU,
        optional, required,
    },
    mamba2::{MAMBA_KEYS, MAMBA_NAMES, MAMBA_WHOLE_NAMES, TRANSFORMS},
    tensors::{ATTENTION, GATED, MAMBA_NORM, MAMBA2, MIXTURE_IN_ONE, NORMS, SHARED_EXPERT},
};

pub const GRANITE_HYBRID: Arch = Arch {
    name: "granitehybrid",
    rope_switch: true,
    shared_is_dense: true,
    layers: LayerPattern::ByHeads,
    recurrence: Some(RecurrenceKind::Mamba2),
    layer_tensors: &[NORMS],
    attention_tensors: &[ATTENTION],
    recurrent_tensors: &[MAMBA2, MAMBA_NORM],
    feed_forward: GATED,
    experts: &[MIXTURE_IN_ONE, SHARED_EXPERT],
    row_splits: &[
        gate_and_up("ffn_gate_up", &[("ffn_gate", PieceRows::Share), ("ffn_up", PieceRows::Share)]),
        gate_and_up("ffn_gate_up_shexp", &[("ffn_gate_shexp", PieceRows::Share), ("ffn_up_shexp", PieceRows::Share)]),
    ],
    hugging_face: Some(&HuggingFace {
        model_types: &["granitemoehybrid"],
        defaults: &[("rope_theta", ConstValue::Number(10000.0))],
        keys: &[KEYS, DECODER_KEYS, RMS, &[SILU], SCALES, MAMBA_KEYS],
        names: &[COMMON_NAMES, PRE_NORM_NAMES, EXPERT_NAMES, NAMES, MAMBA_NAMES],
        whole_names: &[MAMBA_WHOLE_NAMES],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..GRANITE
};

const fn gate_and_up(whole: &'static str, pieces: &'static [(&'static str, PieceRows)]) -> RowSplit {
    RowSplit { whole, groups: None, pieces, stacks: false }
}

const LAYER_KINDS: &[(&str, LayerKind)] = &[
    ("attention", LayerKind::Attention),
    ("full_attention", LayerKind::Attention),
    ("mamba", LayerKind::Recurrent),
    ("linear_attention", LayerKind::Recurrent),
];

const KEYS: &[ConfigKey] = &[
    // Before `DECODER_KEYS`: the length of the feed-forward has another key than in other models.
    required("shared_intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("shared_intermediate_size", KeyMapping::Integer("expert_shared_feed_forward_length")),
    required("intermediate_size", KeyMapping::Integer("expert_feed_forward_length")),
    optional("num_local_experts", KeyMapping::Integer("expert_count")),
    optional("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    optional("position_embedding_type", KeyMapping::TextIs("rope", "rope.scaling.finetuned")),
    optional("attention_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    required("layer_types", KeyMapping::LayerKinds(LAYER_KINDS)),
];

const NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_up_shexp", "model.layers.{}.shared_mlp.input_linear"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"),
];
