//! Encoders that are BERT with rope instead of learned positions, and biases. Jina's embeddings v3: the feed-forward is BERT's. GTE (Alibaba's
//! multilingual and v1.5 models): the feed-forward has a gate. The task adapters of Jina's are files of their own,
//! which are not read: what runs is the model without any.

use super::{
    Arch, ClassifierHead, PieceRows, RopeKind, RowSplit,
    bert::{DENSE, POOLED},
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    nomic_bert::TRANSFORMERS_NAMES,
    tensors::{ATTENTION, ENCODER_MODEL, ENCODER_NORM_BIASES, ENCODER_NORMS, GATED, UNGATED},
};
use crate::tensor::ops::Activation;

pub const JINA_BERT_V3: Arch = Arch {
    name: "jina-bert-v3",
    rope: Some(RopeKind::Halves),
    activation: Activation::Gelu,
    model_tensors: &[ENCODER_MODEL],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    classifier: Some(ClassifierHead { pooling: "cls", activation: "tanh", has_dense: true }),
    hugging_face: Some(&HuggingFace {
        model_types: &["jina_embeddings_v3"],
        defaults: &[("rope_theta", ConstValue::Number(20000.0)), ("layer_norm_eps", ConstValue::Number(1e-5))],
        keys: &[KEYS],
        names: &[NAMES, TRANSFORMERS_NAMES, UNGATED_NAMES, JINA_NAMES],
        prefixes: &["roberta.", "jina_embeddings_v3.", "model."],
        ignored: &["embeddings.position_ids", "embeddings.token_type_ids"],
        other_parts: &["pooler.", "roberta.pooler.", "lm_head."],
        other_heads: &["classifier.", "qa_outputs."],
        classifier: Some(&DENSE),
        ..HuggingFace::DECODER
    }),
    ..Arch::ENCODER
};

pub const GTE: Arch = Arch {
    name: "gte",
    rope: Some(RopeKind::Halves),
    activation: Activation::Gelu,
    model_tensors: &[ENCODER_MODEL],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    feed_forward: GATED,
    row_splits: &[RowSplit {
        whole: "ffn_up_gate",
        groups: None,
        pieces: &[("ffn_up", PieceRows::Share), ("ffn_gate", PieceRows::Share)],
        stacks: false,
    }],
    classifier: Some(ClassifierHead { pooling: "cls", activation: "tanh", has_dense: true }),
    hugging_face: Some(&HuggingFace {
        model_types: &["gte"],
        defaults: &[("rope_theta", ConstValue::Number(160000.0)), ("layer_norm_eps", ConstValue::Number(1e-12))],
        keys: &[KEYS],
        names: &[NAMES, TRANSFORMERS_NAMES, ALIBABA_NAMES],
        prefixes: &["gte.", "new."],
        other_parts: &["pooler.", "gte.pooler.", "new.pooler.", "lm_head."],
        other_heads: &["classifier.", "qa_outputs."],
        classifier: Some(&POOLED),
        others: &[&NEW],
        ..HuggingFace::DECODER
    }),
    ..Arch::ENCODER
};

/// GTE as Alibaba's own code writes it.
const NEW: HuggingFace = HuggingFace {
    model_types: &["new"],
    defaults: &[("rope_theta", ConstValue::Number(10000.0)), ("layer_norm_eps", ConstValue::Number(1e-12))],
    keys: &[KEYS, NEW_KEYS],
    names: &[NAMES, TRANSFORMERS_NAMES, ALIBABA_NAMES, UNPACKED_NAMES],
    rope_ntk: true,
    prefixes: &["new."],
    other_parts: &["pooler.", "new.pooler.", "lm_head."],
    other_heads: &["classifier.", "qa_outputs."],
    classifier: Some(&POOLED),
    ..HuggingFace::DECODER
};

const NEW_KEYS: &[ConfigKey] = &[
    optional("position_embedding_type", KeyMapping::AllowOnly(&[ConstValue::Text("rope")])),
    optional("layer_norm_type", KeyMapping::AllowOnly(&[ConstValue::Text("layer_norm")])),
    optional("logn_attention_scale", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

const KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    optional("head_dim", KeyMapping::Integer("attention.key_length")),
    optional("head_dim", KeyMapping::Integer("attention.value_length")),
    optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("gelu")])),
];

const NAMES: &[(&str, &str)] =
    &[("token_embd", "embeddings.word_embeddings"), ("token_types", "embeddings.token_type_embeddings")];

/// As Alibaba's own code names them.
const ALIBABA_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_qkv", "encoder.layer.{}.attention.qkv_proj"),
    ("blk.{}.attn_output", "encoder.layer.{}.attention.o_proj"),
    ("blk.{}.attn_output_norm", "encoder.layer.{}.attn_ln"),
    ("blk.{}.ffn_up_gate", "encoder.layer.{}.mlp.up_gate_proj"),
    ("blk.{}.ffn_down", "encoder.layer.{}.mlp.down_proj"),
    ("blk.{}.layer_output_norm", "encoder.layer.{}.mlp_ln"),
];

/// The same with `pack_qkv: false`.
const UNPACKED_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q", "encoder.layer.{}.attention.q_proj"),
    ("blk.{}.attn_k", "encoder.layer.{}.attention.k_proj"),
    ("blk.{}.attn_v", "encoder.layer.{}.attention.v_proj"),
];

/// As Jina's own code names them.
const JINA_NAMES: &[(&str, &str)] = &[
    ("token_embd_norm", "emb_ln"),
    ("blk.{}.attn_qkv", "encoder.layers.{}.mixer.Wqkv"),
    ("blk.{}.attn_output", "encoder.layers.{}.mixer.out_proj"),
    ("blk.{}.attn_output_norm", "encoder.layers.{}.norm1"),
    ("blk.{}.ffn_up", "encoder.layers.{}.mlp.fc1"),
    ("blk.{}.ffn_down", "encoder.layers.{}.mlp.fc2"),
    ("blk.{}.layer_output_norm", "encoder.layers.{}.norm2"),
];

const UNGATED_NAMES: &[(&str, &str)] =
    &[("blk.{}.ffn_up", "layers.{}.mlp.fc1"), ("blk.{}.ffn_down", "layers.{}.mlp.fc2")];
