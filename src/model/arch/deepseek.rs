//! DeepSeek-V2 and V3, and what has their form (Kimi K2, Moonlight, GLM-4.7-Flash; Youtu-LLM, which is dense): attention over latents, dense
//! layers first, then experts in groups, and some that every token uses.
//!
//! llama.cpp's files have the matrices of keys and values as one, or apart and those of keys transposed. They do not say how the experts of
//! a group count: with a softmax, the best of them (V2), with the sigmoid of their scores, the two best (V3).

use super::{
    Arch, PieceRows, RopeKind, RowSplit,
    ernie::SHARED_EXPERT_NAMES,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, HuggingFace, KeyMapping, PRE_NORM_NAMES, RMS, ROUTER_CORRECTION_NAME,
        SILU, optional, required,
    },
    qwen3::EXPERT_NAMES,
    tensors::{
        Dim::{Embedding, Heads, LatentKey, LatentRank, LatentRow, LatentValue, LatentValues, Query, QueryRank},
        MIXTURE, NORMS, OPTIONAL_ROUTER_CORRECTION, SHARED_EXPERT, TensorSpec, beside, optional as may_have,
        required as has, unless,
    },
};

pub const DEEPSEEK2: Arch = Arch {
    name: "deepseek2",
    rope: Some(RopeKind::Interleaved),
    has_latents: true,
    groups_experts: true,
    normalizes_experts: false,
    layer_tensors: &[NORMS, LATENT_ATTENTION],
    experts: &[MIXTURE, SHARED_EXPERT, OPTIONAL_ROUTER_CORRECTION],
    row_splits: &[KEYS_AND_VALUES],
    hugging_face: Some(&HuggingFace {
        model_types: &["deepseek_v3", "kimi_k2", "glm4_moe_lite"],
        rope: RopeKind::Interleaved,
        defaults: &[
            ("rope_theta", ConstValue::Number(10000.0)),
            ("rope_interleave", ConstValue::Bool(true)),
            ("scoring_func", ConstValue::Text("sigmoid")),
        ],
        keys: &[LATENT_KEYS, RMS, &[SILU, INTERLEAVED], EXPERTS, ROUTING, V3_SCORES],
        has_further_layers: true,
        others: &[&V2, &YOUTU],
        ..LATENT_FORM
    }),
    ..Arch::DECODER
};

const V2: HuggingFace = HuggingFace {
    model_types: &["deepseek_v2"],
    defaults: &[
        ("rope_theta", ConstValue::Number(10000.0)),
        ("topk_method", ConstValue::Text("greedy")),
        ("scoring_func", ConstValue::Text("softmax")),
        ("routed_scaling_factor", ConstValue::Number(1.0)),
    ],
    keys: &[LATENT_KEYS, RMS, &[SILU], EXPERTS, V2_KEYS],
    ..LATENT_FORM
};

const YOUTU: HuggingFace = HuggingFace {
    model_types: &["youtu"],
    defaults: &[
        ("rope_theta", ConstValue::Number(10000.0)),
        ("rope_interleave", ConstValue::Bool(true)),
        ("tie_word_embeddings", ConstValue::Bool(true)),
    ],
    keys: &[LATENT_KEYS, RMS, &[SILU, INTERLEAVED]],
    ..LATENT_FORM
};

/// What all folders with such attention share.
pub(super) const LATENT_FORM: HuggingFace = HuggingFace {
    rope: RopeKind::Interleaved,
    names: &[COMMON_NAMES, PRE_NORM_NAMES, LATENT_NAMES, EXPERT_NAMES, SHARED_EXPERT_NAMES],
    whole_names: &[ROUTER_CORRECTION_NAME],
    ..HuggingFace::DECODER
};

/// Of each head the rows of its keys, then those of its values.
pub(super) const KEYS_AND_VALUES: RowSplit = RowSplit {
    whole: "attn_kv_b",
    groups: Some("attention.head_count"),
    pieces: &[
        ("attn_k_up", PieceRows::Difference("attention.key_length", "rope.dimension_count")),
        ("attn_v_b", PieceRows::Share),
    ],
    stacks: true,
};

/// The sizes of decoders with such attention. The number of heads of keys says nothing, since all of them come from one latent.
pub(super) const LATENT_KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    optional("q_lora_rank", KeyMapping::Integer("attention.q_lora_rank")),
    required("kv_lora_rank", KeyMapping::Integer("attention.kv_lora_rank")),
    required("qk_rope_head_dim", KeyMapping::Integer("rope.dimension_count")),
    required("qk_nope_head_dim", KeyMapping::Sum("qk_rope_head_dim", "attention.key_length")),
    optional("v_head_dim", KeyMapping::Integer("attention.value_length")),
];

pub(super) const EXPERTS: &[ConfigKey] = &[
    required("n_routed_experts", KeyMapping::Integer("expert_count")),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    required("moe_intermediate_size", KeyMapping::Integer("expert_feed_forward_length")),
    required("routed_scaling_factor", KeyMapping::Float("expert_weights_scale")),
    // Which layers have experts is seen by their tensors.
    optional("moe_layer_freq", KeyMapping::AllowOnly(&[ConstValue::Number(1.0)])),
];

const INTERLEAVED: ConfigKey = optional("rope_interleave", KeyMapping::Bool("rope.interleaved"));

/// By groups, with a correction of the scores.
pub(super) const ROUTING: &[ConfigKey] = &[
    required("norm_topk_prob", KeyMapping::Bool("expert_weights_norm")),
    optional("topk_method", KeyMapping::AllowOnly(&[ConstValue::Text("noaux_tc")])),
    // Without them, implementations differ in what they take.
    required("n_group", KeyMapping::Integer("expert_group_count")),
    required("topk_group", KeyMapping::Integer("expert_group_used_count")),
];

const V3_SCORES: &[ConfigKey] = &[
    required("scoring_func", KeyMapping::Gating("expert_gating_func")),
    required("scoring_func", KeyMapping::AllowOnly(&[ConstValue::Text("sigmoid")])),
];

/// Weights that are normed are scaled too in one implementation, and not in another.
const V2_KEYS: &[ConfigKey] = &[
    optional("norm_topk_prob", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    required(
        "topk_method",
        KeyMapping::AllowOnly(&[ConstValue::Text("greedy"), ConstValue::Text("group_limited_greedy")]),
    ),
    required("scoring_func", KeyMapping::Gating("expert_gating_func")),
    required("scoring_func", KeyMapping::AllowOnly(&[ConstValue::Text("softmax")])),
    optional("n_group", KeyMapping::IntegerIfText("topk_method", "group_limited_greedy", "expert_group_count")),
    optional("topk_group", KeyMapping::IntegerIfText("topk_method", "group_limited_greedy", "expert_group_used_count")),
];

pub(super) const LATENT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj"),
    ("blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"),
    ("blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj"),
    ("blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"),
    ("blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"),
    ("blk.{}.attn_kv_b", "model.layers.{}.self_attn.kv_b_proj"),
];

const QUERIES_DOWN: &str = "blk.{}.attn_q_a.weight";
const KEYS_UP: &str = "blk.{}.attn_k_up.weight";

/// Attention over latents. Files have `attn_k_b`, or `attn_kv_b`, whose rows for keys are `attn_k_up` (`Arch::row_splits`).
pub(super) const LATENT_ATTENTION: &[TensorSpec] = &[
    may_have(QUERIES_DOWN, &[Embedding, QueryRank]),
    may_have("blk.{}.attn_q_a.bias", &[QueryRank]),
    beside(QUERIES_DOWN, "blk.{}.attn_q_a_norm.weight", &[QueryRank]),
    beside(QUERIES_DOWN, "blk.{}.attn_q_b.weight", &[QueryRank, Query]),
    unless(QUERIES_DOWN, "blk.{}.attn_q.weight", &[Embedding, Query]),
    has("blk.{}.attn_kv_a_mqa.weight", &[Embedding, LatentRow]),
    may_have("blk.{}.attn_kv_a_mqa.bias", &[LatentRow]),
    has("blk.{}.attn_kv_a_norm.weight", &[LatentRank]),
    may_have(KEYS_UP, &[LatentRank, LatentKey, Heads]),
    unless(KEYS_UP, "blk.{}.attn_k_b.weight", &[LatentKey, LatentRank, Heads]),
    has("blk.{}.attn_v_b.weight", &[LatentRank, LatentValue, Heads]),
    has("blk.{}.attn_output.weight", &[LatentValues, Embedding]),
    may_have("blk.{}.attn_output.bias", &[Embedding]),
];
