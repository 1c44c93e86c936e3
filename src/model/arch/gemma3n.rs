//! Gemma 3n (text): four residual streams, of which each layer reads one and corrects all (AltUp, Baykal et al. 2023); a learned residual beside
//! attention (Laurel, Menghani et al. 2024); gates of which only the largest count; an embedding for each layer; and keys and values that the last
//! layers reuse.
//!
//! Sources: transformers' `modeling_gemma3n.py`; llama.cpp's `conversion/gemma.py` and `models/gemma3n.cpp`. llama.cpp stacks the matrices of the
//! streams; here each is a tensor. Of the standard deviation of gates it takes the estimate for a sample, and transformers, as here, that of the gates.

use super::{
    Arch, PerLayerTensors, WindowPattern, WindowRope,
    hugging_face::{
        COMMON_NAMES, ConfigKey, ConstValue, DECODER_KEYS, GELU_TANH, HuggingFace, KeyMapping, POST_NORM_NAMES,
        QUERY_KEY_NORM_NAMES, RMS, optional, required as required_key,
    },
    tensors::{
        Dim::{
            Embedding, KeyValue, LaurelRank, PerLayer, PerLayerVocabulary, PerLayers, Query, Streams, StreamsSquared,
        },
        HEAD_NORMS, MODEL, NORMS, POST_NORMS, TensorSpec, required,
    },
};
use crate::tensor::ops::Activation;

pub const GEMMA3N: Arch = Arch {
    name: "gemma3n",
    activation: Activation::GeluTanh,
    window: WindowPattern::AllButEvery(5),
    window_rope: Some(WindowRope { default_theta: Some(10000.0) }),
    attention_scale: Some(1.0),
    norms_values: true,
    reuses_kv: true,
    needs_window: true,
    scales_embedding: true,
    default_softcaps: [None, Some(30.0)],
    model_tensors: &[MODEL],
    layer_tensors: &[NORMS, POST_NORMS, ATTENTION_WITHOUT_BIASES, HEAD_NORMS, STREAMS_OF_LAYER],
    per_layer: Some(PerLayerTensors { model: PER_LAYER_MODEL, layer: super::gemma4::PER_LAYER }),
    altup: &[
        required("altup_proj.{}.weight", &[Embedding, Embedding]),
        required("altup_unembd_proj.{}.weight", &[Embedding, Embedding]),
    ],
    hugging_face: Some(&HuggingFace {
        model_types: &["gemma3n_text"],
        defaults: DEFAULTS,
        keys: &[DECODER_KEYS, RMS, &[GELU_TANH], KEYS],
        names: &[COMMON_NAMES, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES, super::gemma4::PER_LAYER_NAMES, NAMES],
        whole_names: &[&[("blk.{}.altup_correct_scale.weight", "model.layers.{}.altup.correct_output_scale")]],
        moved: &[("model.language_model.", "model.")],
        other_parts: &["model.vision_tower.", "model.embed_vision.", "model.audio_tower.", "model.embed_audio."],
        text_part_of: &["gemma3n"],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const ATTENTION_WITHOUT_BIASES: &[TensorSpec] = &[
    required("blk.{}.attn_q.weight", &[Embedding, Query]),
    required("blk.{}.attn_k.weight", &[Embedding, KeyValue]),
    required("blk.{}.attn_v.weight", &[Embedding, KeyValue]),
    required("blk.{}.attn_output.weight", &[Query, Embedding]),
];

const PER_LAYER_MODEL: &[TensorSpec] = &[
    required("per_layer_token_embd.weight", &[PerLayers, PerLayerVocabulary]),
    required("per_layer_model_proj.weight", &[Embedding, PerLayers]),
    required("per_layer_proj_norm.weight", &[PerLayer]),
];

const STREAMS_OF_LAYER: &[TensorSpec] = &[
    required("blk.{}.altup_router.weight", &[Embedding, Streams]),
    required("blk.{}.altup_router_norm.weight", &[Embedding]),
    required("blk.{}.altup_predict_coef.weight", &[Streams, StreamsSquared]),
    required("blk.{}.altup_correct_coef.weight", &[Streams, Streams]),
    required("blk.{}.altup_correct_scale.weight", &[Embedding]),
    required("blk.{}.laurel_l.weight", &[Embedding, LaurelRank]),
    required("blk.{}.laurel_r.weight", &[LaurelRank, Embedding]),
    required("blk.{}.laurel_post_norm.weight", &[Embedding]),
];

/// `layer_types` has every fifth layer with full attention by default, as `Arch::window` has it.
const DEFAULTS: &[(&str, ConstValue)] = &[
    ("vocab_size", ConstValue::Number(262400.0)),
    ("hidden_size", ConstValue::Number(2048.0)),
    ("intermediate_size", ConstValue::Number(16384.0)),
    ("num_hidden_layers", ConstValue::Number(35.0)),
    ("num_attention_heads", ConstValue::Number(8.0)),
    ("num_key_value_heads", ConstValue::Number(2.0)),
    ("head_dim", ConstValue::Number(256.0)),
    ("max_position_embeddings", ConstValue::Number(32768.0)),
    ("rms_norm_eps", ConstValue::Number(1e-6)),
    ("sliding_window", ConstValue::Number(512.0)),
    ("rope_theta", ConstValue::Number(1e6)),
    ("tie_word_embeddings", ConstValue::Bool(true)),
    ("hidden_size_per_layer_input", ConstValue::Number(256.0)),
    ("num_kv_shared_layers", ConstValue::Number(15.0)),
    ("altup_num_inputs", ConstValue::Number(4.0)),
    ("altup_active_idx", ConstValue::Number(0.0)),
];

/// `altup_coef_clip` matters only for training.
const KEYS: &[ConfigKey] = &[
    required_key("sliding_window", KeyMapping::Integer("attention.sliding_window")),
    optional("layer_types", KeyMapping::Windows("attention.sliding_window_pattern")),
    required_key("num_kv_shared_layers", KeyMapping::Integer("attention.shared_kv_layers")),
    required_key("hidden_size_per_layer_input", KeyMapping::Integer("embedding_length_per_layer_input")),
    required_key("altup_num_inputs", KeyMapping::Integer("altup.num_inputs")),
    required_key("altup_active_idx", KeyMapping::Integer("altup.active_idx")),
    optional("altup_correct_scale", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("activation_sparsity_pattern", KeyMapping::Quantiles("activation_sparsity_scale")),
    optional("final_logit_softcapping", KeyMapping::NumberOrNone("final_logit_softcapping")),
    optional("attention_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

const NAMES: &[(&str, &str)] = &[
    ("altup_proj.{}", "model.altup_projections.{}"),
    ("altup_unembd_proj.{}", "model.altup_unembed_projections.{}"),
    ("blk.{}.altup_router", "model.layers.{}.altup.modality_router"),
    ("blk.{}.altup_router_norm", "model.layers.{}.altup.router_norm"),
    ("blk.{}.altup_predict_coef", "model.layers.{}.altup.prediction_coefs"),
    ("blk.{}.altup_correct_coef", "model.layers.{}.altup.correction_coefs"),
    ("blk.{}.laurel_l", "model.layers.{}.laurel.linear_left"),
    ("blk.{}.laurel_r", "model.layers.{}.laurel.linear_right"),
    ("blk.{}.laurel_post_norm", "model.layers.{}.laurel.post_laurel_norm"),
];
