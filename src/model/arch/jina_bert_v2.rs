//! Jina's BERT (jina-embeddings-v2): BERT with ALiBi on both sides instead of positions, and GeGLU. Variants with norms of queries and keys (the one
//! for code) are refused.

use super::{
    Arch, ClassifierHead,
    bert::POOLED,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, ENCODER_MODEL, ENCODER_NORM_BIASES, ENCODER_NORMS, GATED_IN_ONE_WITH_BIAS},
};
use crate::tensor::ops::Activation;

pub const JINA_BERT_V2: Arch = Arch {
    name: "jina-bert-v2",
    rope: None,
    activation: Activation::Gelu,
    default_alibi: Some(8.0),
    model_tensors: &[ENCODER_MODEL],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    feed_forward: GATED_IN_ONE_WITH_BIAS,
    classifier: Some(ClassifierHead { pooling: "cls", activation: "tanh", has_dense: true }),
    hugging_face: Some(&HuggingFace {
        model_types: &["bert", "jina_bert"],
        selected_by: Some(("position_embedding_type", ConstValue::Text("alibi"))),
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["bert."],
        ignored: &["embeddings.position_ids"],
        other_parts: &["pooler.", "bert.pooler.", "cls."],
        other_heads: &["classifier.", "qa_outputs."],
        classifier: Some(&POOLED),
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
    required("feed_forward_type", KeyMapping::AllowOnly(&[ConstValue::Text("geglu")])),
    optional("is_decoder", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("embedding_size", KeyMapping::AllowOnly(&[])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
    ("blk.{}.attn_q", "encoder.layer.{}.attention.self.query"),
    ("blk.{}.attn_k", "encoder.layer.{}.attention.self.key"),
    ("blk.{}.attn_v", "encoder.layer.{}.attention.self.value"),
    ("blk.{}.attn_output", "encoder.layer.{}.attention.output.dense"),
    ("blk.{}.attn_output_norm", "encoder.layer.{}.attention.output.LayerNorm"),
    ("blk.{}.ffn_up", "encoder.layer.{}.mlp.gated_layers"),
    ("blk.{}.ffn_down", "encoder.layer.{}.mlp.wo"),
    ("blk.{}.layer_output_norm", "encoder.layer.{}.mlp.layernorm"),
];
