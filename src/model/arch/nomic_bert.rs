//! Nomic's BERT (nomic-embed-text v1 and v1.5): BERT with rope instead of learned positions, a gated feed-forward, and biases only
//! in norms.
//!
//! The hub's files have the keys and names of Nomic's own code; files written by transformers have its names.

use super::{
    Arch, RopeKind,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, ENCODER_MODEL, ENCODER_NORM_BIASES, ENCODER_NORMS, GATED},
};
use crate::tensor::ops::Activation;

pub const NOMIC_BERT: Arch = Arch {
    name: "nomic-bert",
    rope: Some(RopeKind::Halves),
    activation: Activation::Silu,
    model_tensors: &[ENCODER_MODEL],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    feed_forward: GATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["nomic_bert"],
        defaults: &[
            ("num_hidden_layers", ConstValue::MultipleOf(1, "n_layer")),
            ("hidden_size", ConstValue::MultipleOf(1, "n_embd")),
            ("intermediate_size", ConstValue::MultipleOf(1, "n_inner")),
            ("num_attention_heads", ConstValue::MultipleOf(1, "n_head")),
            // Beyond the context of training, rope would need scaling.
            ("max_position_embeddings", ConstValue::MultipleOf(1, "max_trained_positions")),
            ("max_position_embeddings", ConstValue::MultipleOf(1, "n_positions")),
            ("rope_theta", ConstValue::MultipleOf(1, "rotary_emb_base")),
        ],
        keys: &[KEYS],
        names: &[NAMES, TRANSFORMERS_NAMES],
        prefixes: &["nomic_bert.", "bert."],
        other_parts: &["pooler.", "bert.pooler.", "cls.", "nomic_bert.pooler.", "lm_head."],
        other_heads: &["classifier."],
        classifier: None,
        ..HuggingFace::DECODER
    }),
    ..Arch::ENCODER
};

const KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    optional("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    optional("layer_norm_epsilon", KeyMapping::Float("attention.layer_norm_epsilon")),
    optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("silu")])),
    optional("activation_function", KeyMapping::AllowOnly(&[ConstValue::Text("swiglu")])),
    optional("rotary_emb_fraction", KeyMapping::AllowOnly(&[ConstValue::Number(1.0)])),
    optional("rotary_emb_interleaved", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("rotary_emb_scale_base", KeyMapping::AllowOnly(&[])),
    optional("prenorm", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("causal", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("use_rms_norm", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("qkv_proj_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("mlp_fc1_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("mlp_fc2_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("num_experts", KeyMapping::AllowOnly(&[ConstValue::Number(0.0)])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "emb_ln"),
    ("blk.{}.attn_qkv", "encoder.layers.{}.attn.Wqkv"),
    ("blk.{}.attn_output", "encoder.layers.{}.attn.out_proj"),
    ("blk.{}.attn_output_norm", "encoder.layers.{}.norm1"),
    ("blk.{}.ffn_up", "encoder.layers.{}.mlp.fc11"),
    ("blk.{}.ffn_gate", "encoder.layers.{}.mlp.fc12"),
    ("blk.{}.ffn_down", "encoder.layers.{}.mlp.fc2"),
    ("blk.{}.layer_output_norm", "encoder.layers.{}.norm2"),
];

pub(super) const TRANSFORMERS_NAMES: &[(&str, &str)] = &[
    ("token_embd_norm", "embeddings.LayerNorm"),
    ("blk.{}.attn_q", "layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "layers.{}.self_attn.o_proj"),
    ("blk.{}.attn_output_norm", "layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_gate", "layers.{}.mlp.gate_proj"),
    ("blk.{}.ffn_up", "layers.{}.mlp.up_proj"),
    ("blk.{}.ffn_down", "layers.{}.mlp.down_proj"),
    ("blk.{}.layer_output_norm", "layers.{}.post_mlp_layernorm"),
];
