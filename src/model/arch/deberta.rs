//! DeBERTa v2 and v3 (He et al. 2021): BERT without positions whose attention adds how content and distance fit: the query's content with the
//! key's distance, and the key's content with the query's (disentangled attention). Distances fall into buckets that grow. Variants with a
//! convolution (the xlarge ones of v2) are refused. Folders alone are read: llama.cpp has no such architecture.

use super::{
    Arch, ClassifierHead,
    hugging_face::{ClassifierForm, ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, ENCODER_MODEL, ENCODER_NORM_BIASES, ENCODER_NORMS, RELATIVE_EMBEDDING, UNGATED},
};
use crate::tensor::ops::Activation;

pub const DEBERTA_V2: Arch = Arch {
    name: "deberta-v2",
    rope: None,
    activation: Activation::Gelu,
    model_tensors: &[ENCODER_MODEL, RELATIVE_EMBEDDING],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    classifier: Some(ClassifierHead { pooling: "cls", activation: "gelu", has_dense: true }),
    hugging_face: Some(&HuggingFace {
        model_types: &["deberta-v2"],
        defaults: &[
            ("layer_norm_eps", ConstValue::Number(1e-7)),
            ("position_biased_input", ConstValue::Bool(true)),
            ("share_att_key", ConstValue::Bool(false)),
            ("norm_rel_ebd", ConstValue::Text("none")),
        ],
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["deberta."],
        ignored: &["embeddings.position_ids", "embeddings.position_embeddings"],
        // Of its training.
        other_parts: &["lm_predictions.", "mask_predictions.", "cls.", "pooler."],
        other_heads: &["classifier.", "qa_outputs."],
        classifier: Some(&ClassifierForm {
            names: &[("cls", "pooler.dense"), ("cls.output", "classifier")],
            pooling: "cls",
            activation: "gelu",
            keys: &[optional("pooler_hidden_act", KeyMapping::Text("classifier.activation"))],
        }),
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
    required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("relative_attention", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    required("position_buckets", KeyMapping::Integer("attention.position_buckets")),
    optional("max_relative_positions", KeyMapping::Integer("attention.max_relative_positions")),
    required("pos_att_type", KeyMapping::AllowOnly(&[ConstValue::Text("p2c|c2p"), ConstValue::Text("c2p|p2c")])),
    required("share_att_key", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    required("norm_rel_ebd", KeyMapping::AllowOnly(&[ConstValue::Text("layer_norm")])),
    required("position_biased_input", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("attention_head_size", KeyMapping::Integer("attention.key_length")),
    optional("attention_head_size", KeyMapping::Integer("attention.value_length")),
    optional("conv_kernel_size", KeyMapping::AllowOnly(&[ConstValue::Number(0.0)])),
    optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("gelu")])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
    ("rel_embd", "encoder.rel_embeddings"),
    ("rel_embd_norm", "encoder.LayerNorm"),
    ("blk.{}.attn_q", "encoder.layer.{}.attention.self.query_proj"),
    ("blk.{}.attn_k", "encoder.layer.{}.attention.self.key_proj"),
    ("blk.{}.attn_v", "encoder.layer.{}.attention.self.value_proj"),
    ("blk.{}.attn_output", "encoder.layer.{}.attention.output.dense"),
    ("blk.{}.attn_output_norm", "encoder.layer.{}.attention.output.LayerNorm"),
    ("blk.{}.ffn_up", "encoder.layer.{}.intermediate.dense"),
    ("blk.{}.ffn_down", "encoder.layer.{}.output.dense"),
    ("blk.{}.layer_output_norm", "encoder.layer.{}.output.LayerNorm"),
];
