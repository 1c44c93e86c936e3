//! MiniCPM3: attention over latents as in DeepSeek-V2, with rope on halves, and factors for embedding, residuals and logits.

use super::{
    Arch, RopeKind,
    deepseek::{KEYS_AND_VALUES, LATENT_ATTENTION, LATENT_FORM, LATENT_KEYS},
    hugging_face::{ConfigKey, ConstValue, HuggingFace, KeyMapping, RMS, SILU, required},
    tensors::NORMS,
};

pub const MINICPM3: Arch = Arch {
    name: "minicpm3",
    has_latents: true,
    has_scales: true,
    // Files don't have them.
    default_scales: Some([12.0, 1.4, 256.0]),
    layer_tensors: &[NORMS, LATENT_ATTENTION],
    row_splits: &[KEYS_AND_VALUES],
    hugging_face: Some(&HuggingFace {
        model_types: &["minicpm3"],
        rope: RopeKind::Halves,
        defaults: &[
            ("tie_word_embeddings", ConstValue::Bool(true)),
            ("rope_theta", ConstValue::Number(10000.0)),
            ("scale_emb", ConstValue::Number(12.0)),
            ("scale_depth", ConstValue::Number(1.4)),
            ("dim_model_base", ConstValue::Number(256.0)),
        ],
        keys: &[LATENT_KEYS, RMS, &[SILU], SCALES],
        ..LATENT_FORM
    }),
    ..Arch::DECODER
};

const SCALES: &[ConfigKey] = &[
    required("scale_emb", KeyMapping::Float("embedding_scale")),
    required("scale_depth", KeyMapping::OverSqrt("num_hidden_layers", "residual_scale")),
    required("dim_model_base", KeyMapping::Under("hidden_size", "logit_scale")),
];
