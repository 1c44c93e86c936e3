//! BART, Marian, mBART and M2M-100 (NLLB): encoder-decoders with positions, layer norms and biases everywhere, and a feed-forward without a gate.
//! BART and Marian have their norms after what they follow and none at the end, the others before and at the end. BART and mBART norm the
//! embedding besides. The positions of Marian and M2M-100 are sines.
//!
//! llama.cpp knows no such files.

use super::{
    Arch, Norm,
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, Sines, optional, required},
    tensors::{
        ATTENTION, CROSS_ATTENTION, CROSS_BIASES, CROSS_NORM, CROSS_NORM_BIAS, CROSS_OUTPUT_NORM, EMBEDDING_NORM,
        ENCODER_NORM_BIASES, ENCODER_NORMS, FINAL_NORM, MODEL, MODEL_NORM_BIAS, NORM_BIASES, NORMS, OUTPUT,
        OUTPUT_BIAS, POSITIONS, TOKENS, UNGATED,
    },
};
use crate::tensor::ops::Activation;

pub const BART: Arch = Arch {
    name: "bart",
    encoder: Some(&BART_ENCODER),
    model_tensors: &[TOKENS, OUTPUT, OUTPUT_BIAS, POSITIONS, EMBEDDING_NORM],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION, CROSS_ATTENTION, CROSS_BIASES, CROSS_OUTPUT_NORM],
    hugging_face: Some(&HuggingFace {
        model_types: &["bart"],
        keys: &[KEYS, FUNCTIONS, AS_PUBLISHED],
        names: &[NAMES, POSITION_NAMES, POST_NORM_NAMES],
        ..FORM
    }),
    ..DECODER
};

const BART_ENCODER: Arch = Arch {
    name: "bart-encoder",
    model_tensors: &[TOKENS, POSITIONS, EMBEDDING_NORM],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    ..ENCODER
};

pub const MBART: Arch = Arch {
    name: "mbart",
    encoder: Some(&MBART_ENCODER),
    model_tensors: &[MODEL, MODEL_NORM_BIAS, OUTPUT_BIAS, POSITIONS, EMBEDDING_NORM],
    hugging_face: Some(&HuggingFace {
        model_types: &["mbart"],
        keys: &[KEYS, FUNCTIONS],
        names: &[NAMES, POSITION_NAMES, PRE_NORM_NAMES],
        ..FORM
    }),
    ..PRE_NORMED
};

const MBART_ENCODER: Arch = Arch {
    name: "mbart-encoder",
    model_tensors: &[TOKENS, FINAL_NORM, MODEL_NORM_BIAS, POSITIONS, EMBEDDING_NORM],
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION],
    ..ENCODER
};

pub const M2M_100: Arch = Arch {
    name: "m2m_100",
    encoder: Some(&M2M_100_ENCODER),
    model_tensors: &[MODEL, MODEL_NORM_BIAS, POSITIONS],
    hugging_face: Some(&HuggingFace {
        model_types: &["m2m_100"],
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("layer_norm_eps", ConstValue::Number(1e-5)),
            ("activation_function", ConstValue::Text("relu")),
            ("decoder_start_token_id", ConstValue::Number(2.0)),
        ],
        // A text's positions begin after that of padding.
        keys: &[KEYS, FUNCTIONS, &[optional("pad_token_id", KeyMapping::AllowOnly(&[ConstValue::Number(1.0)]))]],
        names: &[NAMES, PRE_NORM_NAMES],
        ignored: SINES,
        first_position: 0,
        sines: Some(Sines { first: 2, reaches_slowest: true }),
        ..FORM
    }),
    ..PRE_NORMED
};

const M2M_100_ENCODER: Arch =
    Arch { name: "m2m_100-encoder", model_tensors: &[TOKENS, FINAL_NORM, MODEL_NORM_BIAS, POSITIONS], ..MBART_ENCODER };

/// Of Marian NMT, as the models of OPUS-MT.
pub const MARIAN: Arch = Arch {
    name: "marian",
    encoder: Some(&MARIAN_ENCODER),
    model_tensors: &[TOKENS, OUTPUT, OUTPUT_BIAS, POSITIONS],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION, CROSS_ATTENTION, CROSS_BIASES, CROSS_OUTPUT_NORM],
    hugging_face: Some(&HuggingFace {
        model_types: &["marian"],
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("layer_norm_eps", ConstValue::Number(1e-5)),
            ("activation_function", ConstValue::Text("gelu")),
            ("max_position_embeddings", ConstValue::Number(1024.0)),
            ("decoder_start_token_id", ConstValue::Of("pad_token_id")),
        ],
        keys: &[KEYS, MARIAN_KEYS],
        names: &[NAMES, POST_NORM_NAMES],
        ignored: SINES,
        first_position: 0,
        sines: Some(Sines { first: 0, reaches_slowest: false }),
        ..FORM
    }),
    ..DECODER
};

const MARIAN_ENCODER: Arch = Arch {
    name: "marian-encoder",
    model_tensors: &[TOKENS, POSITIONS],
    layer_tensors: &[ENCODER_NORMS, ENCODER_NORM_BIASES, ATTENTION],
    ..ENCODER
};

const DECODER: Arch = Arch {
    rope: None,
    norm: Norm::Layer,
    activation: Activation::Gelu,
    feed_forward: UNGATED,
    classifier: None,
    ..Arch::DECODER
};

const PRE_NORMED: Arch = Arch {
    layer_tensors: &[NORMS, NORM_BIASES, ATTENTION, CROSS_NORM, CROSS_NORM_BIAS, CROSS_ATTENTION, CROSS_BIASES],
    ..DECODER
};

const ENCODER: Arch = Arch { rope: None, activation: Activation::Gelu, feed_forward: UNGATED, ..Arch::ENCODER };

/// The first two rows of the tables of positions are of no token.
const FORM: HuggingFace = HuggingFace {
    defaults: &[
        ("tie_word_embeddings", ConstValue::Bool(true)),
        // transformers has it in its code.
        ("layer_norm_eps", ConstValue::Number(1e-5)),
        ("activation_function", ConstValue::Text("gelu")),
    ],
    whole_names: &[&[("output.bias", "final_logits_bias")]],
    ignored: &["model.encoder.version", "model.decoder.version"],
    other_heads: &["classification_head.", "qa_outputs."],
    classifier: None,
    first_position: 2,
    counts_first_positions: false,
    ..HuggingFace::DECODER
};

const KEYS: &[ConfigKey] = &[
    required("encoder_layers", KeyMapping::Integer("block_count")),
    required("decoder_layers", KeyMapping::Integer("decoder_block_count")),
    required("d_model", KeyMapping::Integer("embedding_length")),
    required("encoder_ffn_dim", KeyMapping::Integer("encoder.feed_forward_length")),
    required("decoder_ffn_dim", KeyMapping::Integer("feed_forward_length")),
    required("encoder_attention_heads", KeyMapping::Integer("encoder.attention.head_count")),
    required("decoder_attention_heads", KeyMapping::Integer("attention.head_count")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
    required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon")),
    required("decoder_start_token_id", KeyMapping::Integer("decoder_start_token_id")),
    required("activation_function", KeyMapping::Text("activation_function")),
    optional("scale_embedding", KeyMapping::Bool("scale_embedding")),
    optional("is_encoder_decoder", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
];

const FUNCTIONS: &[ConfigKey] =
    &[required("activation_function", KeyMapping::AllowOnly(&[ConstValue::Text("gelu"), ConstValue::Text("relu")]))];

/// Some files hold the sines.
const SINES: &[&str] = &["model.encoder.embed_positions", "model.decoder.embed_positions"];

/// What other models of that time had otherwise; configurations still say it.
const AS_PUBLISHED: &[ConfigKey] = &[
    optional("normalize_before", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("normalize_embedding", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("add_final_layer_norm", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("static_position_embeddings", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

/// transformers computes all models alike; what configurations say of another one is refused.
const MARIAN_KEYS: &[ConfigKey] = &[
    required(
        "activation_function",
        KeyMapping::AllowOnly(&[
            ConstValue::Text("swish"),
            ConstValue::Text("silu"),
            ConstValue::Text("relu"),
            ConstValue::Text("gelu"),
        ]),
    ),
    // One vocabulary for both languages.
    optional("share_encoder_decoder_embeddings", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    optional("normalize_before", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("normalize_embedding", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("add_final_layer_norm", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("static_position_embeddings", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "model.shared"),
    ("dec.token_embd", "model.decoder.embed_tokens"),
    ("enc.token_embd", "model.encoder.embed_tokens"),
    ("output", "lm_head"),
    ("token_embd_norm", "model.decoder.layernorm_embedding"),
    ("output_norm", "model.decoder.layer_norm"),
    ("blk.{}.attn_q", "model.decoder.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.decoder.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.decoder.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.decoder.layers.{}.self_attn.out_proj"),
    ("blk.{}.cross_attn_q", "model.decoder.layers.{}.encoder_attn.q_proj"),
    ("blk.{}.cross_attn_k", "model.decoder.layers.{}.encoder_attn.k_proj"),
    ("blk.{}.cross_attn_v", "model.decoder.layers.{}.encoder_attn.v_proj"),
    ("blk.{}.cross_attn_output", "model.decoder.layers.{}.encoder_attn.out_proj"),
    ("blk.{}.ffn_up", "model.decoder.layers.{}.fc1"),
    ("blk.{}.ffn_down", "model.decoder.layers.{}.fc2"),
    ("enc.token_embd_norm", "model.encoder.layernorm_embedding"),
    ("enc.output_norm", "model.encoder.layer_norm"),
    ("enc.blk.{}.attn_q", "model.encoder.layers.{}.self_attn.q_proj"),
    ("enc.blk.{}.attn_k", "model.encoder.layers.{}.self_attn.k_proj"),
    ("enc.blk.{}.attn_v", "model.encoder.layers.{}.self_attn.v_proj"),
    ("enc.blk.{}.attn_output", "model.encoder.layers.{}.self_attn.out_proj"),
    ("enc.blk.{}.ffn_up", "model.encoder.layers.{}.fc1"),
    ("enc.blk.{}.ffn_down", "model.encoder.layers.{}.fc2"),
];

const POSITION_NAMES: &[(&str, &str)] =
    &[("position_embd", "model.decoder.embed_positions"), ("enc.position_embd", "model.encoder.embed_positions")];

const POST_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_output_norm", "model.decoder.layers.{}.self_attn_layer_norm"),
    ("blk.{}.cross_attn_output_norm", "model.decoder.layers.{}.encoder_attn_layer_norm"),
    ("blk.{}.layer_output_norm", "model.decoder.layers.{}.final_layer_norm"),
    ("enc.blk.{}.attn_output_norm", "model.encoder.layers.{}.self_attn_layer_norm"),
    ("enc.blk.{}.layer_output_norm", "model.encoder.layers.{}.final_layer_norm"),
];

const PRE_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_norm", "model.decoder.layers.{}.self_attn_layer_norm"),
    ("blk.{}.cross_attn_norm", "model.decoder.layers.{}.encoder_attn_layer_norm"),
    ("blk.{}.ffn_norm", "model.decoder.layers.{}.final_layer_norm"),
    ("enc.blk.{}.attn_norm", "model.encoder.layers.{}.self_attn_layer_norm"),
    ("enc.blk.{}.ffn_norm", "model.encoder.layers.{}.final_layer_norm"),
];
