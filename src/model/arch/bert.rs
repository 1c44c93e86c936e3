//! BERT: an encoder with learned positions and token types, layer norms after attention and feed-forward, biases everywhere, and the exact
//! GELU. For example all-MiniLM, BGE, E5, GTE and most other sentence encoders of that time. RoBERTa and XLM-RoBERTa (multilingual E5,
//! BGE-M3) differ only in where positions begin.
//!
//! Tensor names as in llama.cpp's files.

use super::{
    Arch,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, ENCODER_MODEL, ENCODER_NORM_BIASES, ENCODER_NORMS, POSITIONS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const BERT: Arch = Arch {
    name: "bert",
    rope: None,
    activation: Activation::Gelu,
    model_tensors: &[ENCODER_MODEL, POSITIONS],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["bert"],
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["bert."],
        ignored: &["embeddings.position_ids"],
        // Parts after the encoder, of its training.
        other_parts: &["pooler.", "bert.pooler.", "cls."],
        other_heads: &["classifier.", "qa_outputs."],
        others: &[&ROBERTA],
        ..HuggingFace::DECODER
    }),
    ..Arch::ENCODER
};

/// Padding has position 1, its token id. No token has position 0.
const ROBERTA: HuggingFace = HuggingFace {
    model_types: &["roberta", "xlm-roberta", "camembert"],
    keys: &[KEYS, &[optional("pad_token_id", KeyMapping::AllowOnly(&[ConstValue::Number(1.0)]))]],
    names: &[NAMES],
    prefixes: &["roberta."],
    ignored: &["embeddings.position_ids"],
    other_parts: &["pooler.", "roberta.pooler.", "lm_head."],
    other_heads: &["classifier.", "qa_outputs."],
    first_position: 2,
    ..HuggingFace::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("gelu")])),
    optional("position_embedding_type", KeyMapping::AllowOnly(&[ConstValue::Text("absolute")])),
    optional("is_decoder", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("embedding_size", KeyMapping::AllowOnly(&[])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
    ("blk.{}.attn_q", "encoder.layer.{}.attention.self.query"),
    ("blk.{}.attn_k", "encoder.layer.{}.attention.self.key"),
    ("blk.{}.attn_v", "encoder.layer.{}.attention.self.value"),
    ("blk.{}.attn_output", "encoder.layer.{}.attention.output.dense"),
    ("blk.{}.attn_output_norm", "encoder.layer.{}.attention.output.LayerNorm"),
    ("blk.{}.ffn_up", "encoder.layer.{}.intermediate.dense"),
    ("blk.{}.ffn_down", "encoder.layer.{}.output.dense"),
    ("blk.{}.layer_output_norm", "encoder.layer.{}.output.LayerNorm"),
];
