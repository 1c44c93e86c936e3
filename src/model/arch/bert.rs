//! BERT: an encoder with learned positions and token types, layer norms after attention and feed-forward, biases everywhere, and the exact
//! GELU. For example all-MiniLM, BGE, E5, GTE and most other sentence encoders of that time. RoBERTa and XLM-RoBERTa (multilingual E5,
//! BGE-M3) differ only in where positions begin, DistilBERT in having no token types, and ELECTRA in the length of its embedding.
//!
//! Tensor names as in llama.cpp's files.

use super::{
    Arch, ClassifierHead,
    hugging_face::{ClassifierForm, ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, DISTANCES, ENCODER_MODEL, ENCODER_NORM_BIASES, ENCODER_NORMS, POSITIONS, UNGATED},
};
use crate::tensor::ops::Activation;

pub const BERT: Arch = Arch {
    name: "bert",
    rope: None,
    activation: Activation::Gelu,
    model_tensors: &[ENCODER_MODEL, POSITIONS],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    feed_forward: UNGATED,
    classifier: Some(ClassifierHead { pooling: "cls", activation: "tanh", has_dense: true }),
    hugging_face: Some(&HuggingFace {
        model_types: &["bert"],
        keys: &[KEYS, UNPROJECTED],
        names: &[NAMES],
        prefixes: &["bert."],
        ignored: &["embeddings.position_ids"],
        // Parts after the encoder, of its training.
        other_parts: &["pooler.", "bert.pooler.", "cls."],
        other_heads: &["classifier.", "qa_outputs."],
        classifier: Some(&POOLED),
        others: &[&ROBERTA, &DISTILBERT, &ELECTRA],
        ..HuggingFace::DECODER
    }),
    ..Arch::ENCODER
};

/// Padding has position 1, its token id. No token has position 0.
const ROBERTA: HuggingFace = HuggingFace {
    model_types: &["roberta", "xlm-roberta", "camembert"],
    keys: &[KEYS, UNPROJECTED, PADDED_BY_ONE],
    names: &[NAMES],
    prefixes: &["roberta."],
    ignored: &["embeddings.position_ids"],
    other_parts: &["pooler.", "roberta.pooler.", "lm_head."],
    other_heads: &["classifier.", "qa_outputs."],
    classifier: Some(&DENSE),
    first_position: 2,
    ..HuggingFace::DECODER
};

/// The pooler belongs to the head.
pub(super) const POOLED: ClassifierForm = ClassifierForm {
    names: &[("cls", "pooler.dense"), ("cls.output", "classifier")],
    pooling: "cls",
    activation: "tanh",
    keys: &[],
};

pub(super) const DENSE: ClassifierForm = ClassifierForm {
    names: &[("cls", "classifier.dense"), ("cls.output", "classifier.out_proj")],
    pooling: "cls",
    activation: "tanh",
    keys: &[],
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
];

const UNPROJECTED: &[ConfigKey] = &[optional("embedding_size", KeyMapping::AllowOnly(&[]))];

const PADDED_BY_ONE: &[ConfigKey] = &[optional("pad_token_id", KeyMapping::AllowOnly(&[ConstValue::Number(1.0)]))];

/// MPNet: what the distance of two tokens adds to their score is learned, in buckets. Its folders alone are read: llama.cpp has no such
/// architecture.
pub const MPNET: Arch = Arch {
    name: "mpnet",
    model_tensors: &[ENCODER_MODEL, POSITIONS, DISTANCES],
    hugging_face: Some(&HuggingFace {
        model_types: &["mpnet"],
        keys: &[
            KEYS,
            UNPROJECTED,
            PADDED_BY_ONE,
            &[optional("relative_attention_num_buckets", KeyMapping::AllowOnly(&[ConstValue::Number(32.0)]))],
        ],
        names: &[MPNET_NAMES, NAMES],
        prefixes: &["mpnet."],
        ignored: &["embeddings.position_ids"],
        other_parts: &["pooler.", "mpnet.pooler.", "lm_head."],
        other_heads: &["classifier.", "qa_outputs."],
        classifier: Some(&DENSE),
        first_position: 2,
        ..HuggingFace::DECODER
    }),
    ..BERT
};

const MPNET_NAMES: &[(&str, &str)] = &[
    ("attn_rel_b", "encoder.relative_attention_bias"),
    ("blk.{}.attn_q", "encoder.layer.{}.attention.attn.q"),
    ("blk.{}.attn_k", "encoder.layer.{}.attention.attn.k"),
    ("blk.{}.attn_v", "encoder.layer.{}.attention.attn.v"),
    ("blk.{}.attn_output", "encoder.layer.{}.attention.attn.o"),
    ("blk.{}.attn_output_norm", "encoder.layer.{}.attention.LayerNorm"),
];

/// BERT without token types. Positions stand in the file, even if they are sines.
const DISTILBERT: HuggingFace = HuggingFace {
    model_types: &["distilbert"],
    defaults: &[("layer_norm_eps", ConstValue::Number(1e-12))],
    keys: &[DISTILBERT_KEYS],
    names: &[NAMES, DISTILBERT_NAMES],
    prefixes: &["distilbert."],
    ignored: &["embeddings.position_ids"],
    other_parts: &["vocab_transform.", "vocab_layer_norm.", "vocab_projector."],
    other_heads: &["classifier.", "pre_classifier.", "qa_outputs."],
    classifier: Some(&ClassifierForm {
        names: &[("cls", "pre_classifier"), ("cls.output", "classifier")],
        pooling: "cls",
        activation: "relu",
        keys: &[],
    }),
    ..HuggingFace::DECODER
};

const DISTILBERT_KEYS: &[ConfigKey] = &[
    required("n_layers", KeyMapping::Integer("block_count")),
    required("dim", KeyMapping::Integer("embedding_length")),
    required("hidden_dim", KeyMapping::Integer("feed_forward_length")),
    required("n_heads", KeyMapping::Integer("attention.head_count")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    optional("activation", KeyMapping::AllowOnly(&[ConstValue::Text("gelu")])),
];

const DISTILBERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q", "transformer.layer.{}.attention.q_lin"),
    ("blk.{}.attn_k", "transformer.layer.{}.attention.k_lin"),
    ("blk.{}.attn_v", "transformer.layer.{}.attention.v_lin"),
    ("blk.{}.attn_output", "transformer.layer.{}.attention.out_lin"),
    ("blk.{}.attn_output_norm", "transformer.layer.{}.sa_layer_norm"),
    ("blk.{}.ffn_up", "transformer.layer.{}.ffn.lin1"),
    ("blk.{}.ffn_down", "transformer.layer.{}.ffn.lin2"),
    ("blk.{}.layer_output_norm", "transformer.layer.{}.output_layer_norm"),
];

/// BERT whose embedding may be shorter than its residual stream.
const ELECTRA: HuggingFace = HuggingFace {
    model_types: &["electra"],
    keys: &[KEYS],
    names: &[NAMES, &[("token_embd_proj", "embeddings_project")]],
    prefixes: &["electra."],
    ignored: &["embeddings.position_ids"],
    // Of its training.
    other_parts: &["discriminator_predictions.", "generator_predictions.", "generator_lm_head."],
    other_heads: &["classifier.", "qa_outputs."],
    classifier: Some(&ClassifierForm { activation: "gelu", ..DENSE }),
    ..HuggingFace::DECODER
};

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
