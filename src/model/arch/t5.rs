//! T5, its version 1.1, Flan-T5 and mT5: encoder-decoders without positions, whose scores get what is learned for buckets of distances. T5 has
//! a feed-forward without a gate, ReLU, and the embedding for an output matrix, by the root of its width smaller; the others have gates with
//! GELU and an output matrix of their own. Scores are not scaled.
//!
//! Tensor names as in llama.cpp's files, the decoder's without their `dec.`. The encoder alone (`t5encoder`) makes embeddings.

use super::{
    Arch, GgufName, Norm,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, CROSS_ATTENTION, CROSS_NORM, DISTANCES, FINAL_NORM, GATED, MODEL, NORMS, TOKENS},
};
use crate::tensor::ops::Activation;

pub const T5: Arch = Arch {
    name: "t5",
    rope: None,
    encoder: Some(&T5_ENCODER),
    activation: Activation::GeluTanh,
    ungated: Some(Activation::Relu),
    attention_scale: Some(1.0),
    scales_tied_logits: true,
    gguf_names: GGUF_NAMES,
    model_tensors: &[MODEL, DISTANCES],
    layer_tensors: &[NORMS, ATTENTION, CROSS_NORM, CROSS_ATTENTION],
    feed_forward: GATED,
    classifier: None,
    hugging_face: Some(&HuggingFace {
        model_types: &["t5"],
        defaults: DEFAULTS,
        keys: &[KEYS, DECODER_KEYS],
        names: &[EMBEDDING_NAMES, ENCODER_NAMES, DECODER_NAMES],
        untied_by: Some(("scale_decoder_outputs", ConstValue::Bool(false))),
        ignored: IGNORED,
        classifier: None,
        others: &[&MT5],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const T5_ENCODER: Arch = Arch {
    name: "t5encoder",
    rope: None,
    norm: Norm::Rms,
    activation: Activation::GeluTanh,
    ungated: Some(Activation::Relu),
    attention_scale: Some(1.0),
    gguf_names: GGUF_NAMES,
    model_tensors: &[TOKENS, FINAL_NORM, DISTANCES],
    layer_tensors: &[NORMS, ATTENTION],
    feed_forward: GATED,
    hugging_face: Some(&HuggingFace {
        model_types: &["t5", "mt5"],
        selected_by: Some(("architectures", ConstValue::Text("T5EncoderModel"))),
        defaults: DEFAULTS,
        keys: &[KEYS],
        names: &[EMBEDDING_NAMES, ENCODER_NAMES],
        ignored: IGNORED,
        // Of a file that holds a decoder too.
        other_parts: &["decoder.", "lm_head."],
        classifier: None,
        ..HuggingFace::DECODER
    }),
    ..Arch::ENCODER
};

/// mT5 is T5 1.1 with another vocabulary.
const MT5: HuggingFace = HuggingFace {
    model_types: &["mt5"],
    defaults: &[
        ("tie_word_embeddings", ConstValue::Bool(false)),
        ("feed_forward_proj", ConstValue::Text("gated-gelu")),
        ("num_decoder_layers", ConstValue::Of("num_layers")),
        ("n_positions", ConstValue::Number(512.0)),
        ("relative_attention_num_buckets", ConstValue::Number(32.0)),
        ("relative_attention_max_distance", ConstValue::Number(128.0)),
        ("layer_norm_epsilon", ConstValue::Number(1e-6)),
    ],
    keys: &[KEYS, DECODER_KEYS],
    names: &[EMBEDDING_NAMES, ENCODER_NAMES, DECODER_NAMES],
    untied_by: Some(("scale_decoder_outputs", ConstValue::Bool(false))),
    ignored: IGNORED,
    classifier: None,
    ..HuggingFace::DECODER
};

const DEFAULTS: &[(&str, ConstValue)] = &[
    ("tie_word_embeddings", ConstValue::Bool(true)),
    ("feed_forward_proj", ConstValue::Text("relu")),
    ("num_decoder_layers", ConstValue::Of("num_layers")),
    // Configurations name the length of training; nothing in the model depends on it.
    ("n_positions", ConstValue::Number(512.0)),
    ("relative_attention_num_buckets", ConstValue::Number(32.0)),
    ("relative_attention_max_distance", ConstValue::Number(128.0)),
    ("layer_norm_epsilon", ConstValue::Number(1e-6)),
];

const KEYS: &[ConfigKey] = &[
    required("num_layers", KeyMapping::Integer("block_count")),
    required("d_model", KeyMapping::Integer("embedding_length")),
    required("d_ff", KeyMapping::Integer("feed_forward_length")),
    required("num_heads", KeyMapping::Integer("attention.head_count")),
    required("d_kv", KeyMapping::Integer("attention.key_length")),
    required("d_kv", KeyMapping::Integer("attention.value_length")),
    required("n_positions", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("layer_norm_epsilon", KeyMapping::Float("attention.layer_norm_rms_epsilon")),
    required("relative_attention_num_buckets", KeyMapping::Integer("attention.relative_buckets_count")),
    required("relative_attention_max_distance", KeyMapping::Integer("attention.relative_max_distance")),
    required("feed_forward_proj", KeyMapping::AllowOnly(&[ConstValue::Text("relu"), ConstValue::Text("gated-gelu")])),
    required("feed_forward_proj", KeyMapping::TextIs("gated-gelu", "feed_forward_gated")),
];

const DECODER_KEYS: &[ConfigKey] = &[
    required("num_decoder_layers", KeyMapping::Integer("decoder_block_count")),
    required("decoder_start_token_id", KeyMapping::Integer("decoder_start_token_id")),
    optional("scale_decoder_outputs", KeyMapping::Bool("scale_outputs")),
    optional("is_encoder_decoder", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
];

/// Of old files; transformers ignores it too.
const IGNORED: &[&str] = &["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias"];

const GGUF_NAMES: &[GgufName] = &[
    GgufName { theirs: "attn_o", ours: "attn_output", beside: None },
    GgufName { theirs: "cross_attn_o", ours: "cross_attn_output", beside: None },
];

/// Of one table.
const EMBEDDING_NAMES: &[(&str, &str)] =
    &[("token_embd", "shared"), ("dec.token_embd", "decoder.embed_tokens"), ("enc.token_embd", "encoder.embed_tokens")];

const ENCODER_NAMES: &[(&str, &str)] = &[
    ("enc.attn_rel_b", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
    ("enc.output_norm", "encoder.final_layer_norm"),
    ("enc.blk.{}.attn_norm", "encoder.block.{}.layer.0.layer_norm"),
    ("enc.blk.{}.attn_q", "encoder.block.{}.layer.0.SelfAttention.q"),
    ("enc.blk.{}.attn_k", "encoder.block.{}.layer.0.SelfAttention.k"),
    ("enc.blk.{}.attn_v", "encoder.block.{}.layer.0.SelfAttention.v"),
    ("enc.blk.{}.attn_output", "encoder.block.{}.layer.0.SelfAttention.o"),
    ("enc.blk.{}.ffn_norm", "encoder.block.{}.layer.1.layer_norm"),
    ("enc.blk.{}.ffn_gate", "encoder.block.{}.layer.1.DenseReluDense.wi_0"),
    ("enc.blk.{}.ffn_up", "encoder.block.{}.layer.1.DenseReluDense.wi_1"),
    ("enc.blk.{}.ffn_up", "encoder.block.{}.layer.1.DenseReluDense.wi"),
    ("enc.blk.{}.ffn_down", "encoder.block.{}.layer.1.DenseReluDense.wo"),
];

const DECODER_NAMES: &[(&str, &str)] = &[
    ("output", "lm_head"),
    ("attn_rel_b", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"),
    ("output_norm", "decoder.final_layer_norm"),
    ("blk.{}.attn_norm", "decoder.block.{}.layer.0.layer_norm"),
    ("blk.{}.attn_q", "decoder.block.{}.layer.0.SelfAttention.q"),
    ("blk.{}.attn_k", "decoder.block.{}.layer.0.SelfAttention.k"),
    ("blk.{}.attn_v", "decoder.block.{}.layer.0.SelfAttention.v"),
    ("blk.{}.attn_output", "decoder.block.{}.layer.0.SelfAttention.o"),
    ("blk.{}.cross_attn_norm", "decoder.block.{}.layer.1.layer_norm"),
    ("blk.{}.cross_attn_q", "decoder.block.{}.layer.1.EncDecAttention.q"),
    ("blk.{}.cross_attn_k", "decoder.block.{}.layer.1.EncDecAttention.k"),
    ("blk.{}.cross_attn_v", "decoder.block.{}.layer.1.EncDecAttention.v"),
    ("blk.{}.cross_attn_output", "decoder.block.{}.layer.1.EncDecAttention.o"),
    ("blk.{}.ffn_norm", "decoder.block.{}.layer.2.layer_norm"),
    ("blk.{}.ffn_gate", "decoder.block.{}.layer.2.DenseReluDense.wi_0"),
    ("blk.{}.ffn_up", "decoder.block.{}.layer.2.DenseReluDense.wi_1"),
    ("blk.{}.ffn_up", "decoder.block.{}.layer.2.DenseReluDense.wi"),
    ("blk.{}.ffn_down", "decoder.block.{}.layer.2.DenseReluDense.wo"),
];
