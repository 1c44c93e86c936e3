//! ModernBERT (Warner et al. 2024): an encoder with rope, norms before attention and feed-forward and none before the first attention, GeGLU,
//! and windows in two of three layers. For example gte-modernbert, nomic's modernbert-embed, and rerankers of the same makers.

use super::{
    Arch, ClassifierHead, RopeKind, WindowPattern, WindowRope,
    hugging_face::{ClassifierForm, ConfigKey, ConstValue, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, FINAL_NORM, GATED_IN_ONE, OPTIONAL_NORM_OF_ATTENTION, TOKENS, UNBIASED_EMBEDDING_NORM},
};
use crate::tensor::ops::Activation;

pub const MODERN_BERT: Arch = Arch {
    name: "modern-bert",
    rope: Some(RopeKind::Halves),
    activation: Activation::Gelu,
    window: WindowPattern::AllButFirstOfEvery(3),
    window_rope: Some(WindowRope { default_theta: Some(10000.0) }),
    model_tensors: &[TOKENS, UNBIASED_EMBEDDING_NORM, FINAL_NORM],
    layer_tensors: &[OPTIONAL_NORM_OF_ATTENTION, ATTENTION],
    feed_forward: GATED_IN_ONE,
    // llama.cpp takes the mean, whatever the model was trained with.
    classifier: Some(ClassifierHead { pooling: "mean", activation: "gelu", has_dense: true }),
    hugging_face: Some(&HuggingFace {
        model_types: &["modernbert"],
        defaults: &[
            ("local_attention", ConstValue::Number(128.0)),
            // Files before version 5 of transformers have the first of each pair.
            ("rope_theta", ConstValue::Of("global_rope_theta")),
            ("rope_theta", ConstValue::Number(160000.0)),
            ("rope_local_base_freq", ConstValue::Of("local_rope_theta")),
            ("norm_eps", ConstValue::Number(1e-5)),
            ("classifier_pooling", ConstValue::Text("cls")),
            ("classifier_activation", ConstValue::Text("gelu")),
        ],
        keys: &[KEYS],
        names: &[NAMES],
        prefixes: &["model."],
        // The head of its training.
        other_parts: &["head.", "decoder."],
        other_heads: &["classifier.", "qa_outputs."],
        classifier: Some(&ClassifierForm {
            names: &[("cls", "head.dense"), ("cls.norm", "head.norm"), ("cls.output", "classifier")],
            pooling: "cls",
            activation: "gelu",
            keys: &[
                optional("classifier_pooling", KeyMapping::Text("classifier.pooling")),
                optional("classifier_activation", KeyMapping::Text("classifier.activation")),
            ],
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
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("local_attention", KeyMapping::Integer("attention.sliding_window")),
    optional("layer_types", KeyMapping::Windows("attention.sliding_window_pattern")),
    // Of files before version 5 of transformers.
    optional("global_attn_every_n_layers", KeyMapping::Integer("attention.sliding_window_pattern")),
    optional("rope_scaling", KeyMapping::AllowOnly(&[])),
    optional("hidden_activation", KeyMapping::AllowOnly(&[ConstValue::Text("gelu")])),
    optional(
        "position_embedding_type",
        KeyMapping::AllowOnly(&[ConstValue::Text("absolute"), ConstValue::Text("rope")]),
    ),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "embeddings.tok_embeddings"),
    ("token_embd_norm", "embeddings.norm"),
    ("output_norm", "final_norm"),
    ("blk.{}.attn_norm", "layers.{}.attn_norm"),
    ("blk.{}.attn_qkv", "layers.{}.attn.Wqkv"),
    ("blk.{}.attn_output", "layers.{}.attn.Wo"),
    ("blk.{}.ffn_norm", "layers.{}.mlp_norm"),
    ("blk.{}.ffn_up", "layers.{}.mlp.Wi"),
    ("blk.{}.ffn_down", "layers.{}.mlp.Wo"),
];
