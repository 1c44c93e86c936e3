//! Gemma 4 (text), of three kinds: small models whose tokens have an embedding for each layer besides their own and whose last layers reuse
//! keys and values, dense ones, and mixtures of experts beside a dense feed-forward. Layers with full attention have longer heads than those
//! with a window, may have keys for values, and rope turns a part of their pairs (`rope_freqs`; the others' frequencies are divided by 1e30).
//!
//! Sources: transformers' `modeling_gemma4.py`; llama.cpp's `conversion/gemma.py` and `models/gemma4.cpp`.

use super::{
    Arch, PerLayerTensors, WindowPattern, WindowRope,
    hugging_face::{
        ByKind, COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, GELU_TANH, HuggingFace, KeyMapping, POST_NORM_NAMES,
        QUERY_KEY_NORM_NAMES, RMS, optional, required as required_key,
    },
    tensors::{
        Dim::{Embedding, Experts, KeyValue, One, PerLayer, PerLayers, Query, RopePairs, Vocabulary},
        GATED, HEAD_NORMS, MIXTURE_IN_ONE, MODEL, NORMS, POST_NORMS, TensorSpec, optional as optional_tensor, required,
    },
};
use crate::tensor::ops::Activation;

pub const GEMMA4: Arch = Arch {
    name: "gemma4",
    activation: Activation::GeluTanh,
    window: WindowPattern::AllButEvery(6),
    window_rope: Some(WindowRope { default_theta: Some(10000.0) }),
    attention_scale: Some(1.0),
    norms_values: true,
    reuses_kv: true,
    values_may_be_keys: true,
    needs_window: true,
    scales_embedding: true,
    model_tensors: &[MODEL, &[required("rope_freqs.weight", &[RopePairs])]],
    layer_tensors: &[NORMS, POST_NORMS, ATTENTION_WITHOUT_BIASES, HEAD_NORMS, OUTPUT_SCALE],
    experts: &[GATED, MIXTURE_IN_ONE, BESIDE_EXPERTS],
    per_layer: Some(PerLayerTensors { model: PER_LAYER_MODEL, layer: PER_LAYER }),
    hugging_face: Some(&HuggingFace {
        others: &[&UNIFIED],
        keys: &[DECODER_KEYS, RMS, &[GELU_TANH], KEYS, PER_LAYER_KEYS, EXPERT_KEYS],
        ..UNIFIED_OR_NOT
    }),
    ..Arch::DECODER
};

/// The form of folders of all kinds.
const UNIFIED_OR_NOT: HuggingFace = HuggingFace {
    model_types: &["gemma4_text"],
    // Configurations of the multimodal models may leave these out.
    defaults: DEFAULTS,
    names: &[COMMON_NAMES, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES, PER_LAYER_NAMES, NAMES],
    whole_names: &[WHOLE_NAMES],
    moved: &[("model.language_model.", "model.")],
    other_parts: OTHER_PARTS,
    text_part_of: &["gemma4"],
    by_kind: ByKind::HeadsAndRopes { turned: 0.25 },
    ..HuggingFace::DECODER
};

/// Gemma 4 12B, whose images and sounds go through no model of their own: without embeddings for each layer and experts.
const UNIFIED: HuggingFace = HuggingFace {
    model_types: &["gemma4_unified_text"],
    keys: &[DECODER_KEYS, RMS, &[GELU_TANH], KEYS],
    text_part_of: &["gemma4_unified"],
    ..UNIFIED_OR_NOT
};

const ATTENTION_WITHOUT_BIASES: &[TensorSpec] = &[
    required("blk.{}.attn_q.weight", &[Embedding, Query]),
    required("blk.{}.attn_k.weight", &[Embedding, KeyValue]),
    // `layer_config.rs` says which layers need it: where a layer with full attention lacks it, the values are the keys.
    optional_tensor("blk.{}.attn_v.weight", &[Embedding, KeyValue]),
    required("blk.{}.attn_output.weight", &[Query, Embedding]),
];

/// The factor of the residual stream at a layer's end.
const OUTPUT_SCALE: &[TensorSpec] = &[optional_tensor("blk.{}.layer_output_scale.weight", &[One])];

/// What a dense feed-forward and experts have besides where both run: their norms, the factors of the router's input, and those of the
/// experts' results.
const BESIDE_EXPERTS: &[TensorSpec] = &[
    required("blk.{}.ffn_gate_inp.scale", &[Embedding]),
    required("blk.{}.ffn_down_exps.scale", &[Experts]),
    required("blk.{}.pre_ffw_norm_2.weight", &[Embedding]),
    required("blk.{}.post_ffw_norm_1.weight", &[Embedding]),
    required("blk.{}.post_ffw_norm_2.weight", &[Embedding]),
];

const PER_LAYER_MODEL: &[TensorSpec] = &[
    required("per_layer_token_embd.weight", &[PerLayers, Vocabulary]),
    required("per_layer_model_proj.weight", &[Embedding, PerLayers]),
    required("per_layer_proj_norm.weight", &[PerLayer]),
];

pub(super) const PER_LAYER: &[TensorSpec] = &[
    required("blk.{}.inp_gate.weight", &[Embedding, PerLayer]),
    required("blk.{}.proj.weight", &[PerLayer, Embedding]),
    required("blk.{}.post_norm.weight", &[Embedding]),
];

const DEFAULTS: &[(&str, ConstValue)] = &[
    ("vocab_size", ConstValue::Number(262144.0)),
    ("hidden_size", ConstValue::Number(2304.0)),
    ("intermediate_size", ConstValue::Number(9216.0)),
    ("num_hidden_layers", ConstValue::Number(30.0)),
    ("num_attention_heads", ConstValue::Number(8.0)),
    ("num_key_value_heads", ConstValue::Number(4.0)),
    ("head_dim", ConstValue::Number(256.0)),
    ("max_position_embeddings", ConstValue::Number(131072.0)),
    ("rms_norm_eps", ConstValue::Number(1e-6)),
    ("sliding_window", ConstValue::Number(512.0)),
    ("tie_word_embeddings", ConstValue::Bool(true)),
    ("hidden_size_per_layer_input", ConstValue::Number(256.0)),
];

/// What else depends on the kind of a layer is in `hugging_face/layer_kinds.rs`.
const KEYS: &[ConfigKey] = &[
    required_key("sliding_window", KeyMapping::Integer("attention.sliding_window")),
    required_key("layer_types", KeyMapping::Windows("attention.sliding_window_pattern")),
    optional("num_kv_shared_layers", KeyMapping::Integer("attention.shared_kv_layers")),
    optional("final_logit_softcapping", KeyMapping::NumberOrNone("final_logit_softcapping")),
    optional("attention_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

const PER_LAYER_KEYS: &[ConfigKey] =
    &[optional("hidden_size_per_layer_input", KeyMapping::Integer("embedding_length_per_layer_input"))];

const EXPERT_KEYS: &[ConfigKey] = &[
    optional("num_experts", KeyMapping::IntegerIf("enable_moe_block", "expert_count")),
    optional("top_k_experts", KeyMapping::IntegerIf("enable_moe_block", "expert_used_count")),
    optional("moe_intermediate_size", KeyMapping::IntegerIf("enable_moe_block", "expert_feed_forward_length")),
];

pub(super) const PER_LAYER_NAMES: &[(&str, &str)] = &[
    ("per_layer_token_embd", "model.embed_tokens_per_layer"),
    ("per_layer_model_proj", "model.per_layer_model_projection"),
    ("per_layer_proj_norm", "model.per_layer_projection_norm"),
    ("blk.{}.inp_gate", "model.layers.{}.per_layer_input_gate"),
    ("blk.{}.proj", "model.layers.{}.per_layer_projection"),
    ("blk.{}.post_norm", "model.layers.{}.post_per_layer_input_norm"),
];

const NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.router.proj"),
    ("blk.{}.pre_ffw_norm_2", "model.layers.{}.pre_feedforward_layernorm_2"),
    ("blk.{}.post_ffw_norm_1", "model.layers.{}.post_feedforward_layernorm_1"),
    ("blk.{}.post_ffw_norm_2", "model.layers.{}.post_feedforward_layernorm_2"),
];

const WHOLE_NAMES: &[(&str, &str)] = &[
    ("blk.{}.layer_output_scale.weight", "model.layers.{}.layer_scalar"),
    ("blk.{}.ffn_gate_inp.scale", "model.layers.{}.router.scale"),
    ("blk.{}.ffn_down_exps.scale", "model.layers.{}.router.per_expert_scale"),
    ("blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.experts.gate_up_proj"),
    ("blk.{}.ffn_down_exps.weight", "model.layers.{}.experts.down_proj"),
];

/// Images and sounds.
const OTHER_PARTS: &[&str] = &[
    "model.vision_tower.",
    "model.embed_vision.",
    "model.vision_embedder.",
    "model.audio_tower.",
    "model.embed_audio.",
];
