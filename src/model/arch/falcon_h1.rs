//! Falcon-H1: in every layer attention and a Mamba-2 mixer side by side, on the same input. The norm of the mixer's result is there or not.
//!
//! Configurations have a factor for almost every part. llama.cpp's converter multiplies the weights with them; here they become factors of
//! the embedding, scores, logits, gates, steps and of what is added to the residual stream.

use super::{
    Arch, LayerPattern, RecurrenceKind,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, RMS, SILU, optional},
    mamba2::{MAMBA_KEYS, MAMBA_NAMES, MAMBA_WHOLE_NAMES, TRANSFORMS},
    tensors::{ATTENTION, MAMBA2, NORMS, OPTIONAL_MAMBA_NORM},
};

pub const FALCON_H1: Arch = Arch {
    name: "falcon-h1",
    has_multipliers: true,
    layers: LayerPattern::Both,
    recurrence: Some(RecurrenceKind::Mamba2),
    layer_tensors: &[NORMS],
    attention_tensors: &[ATTENTION],
    recurrent_tensors: &[MAMBA2, OPTIONAL_MAMBA_NORM],
    hugging_face: Some(&HuggingFace {
        model_types: &["falcon_h1"],
        keys: &[DECODER_KEYS, RMS, &[SILU], MAMBA_KEYS, KEYS],
        names: &[NAMES, MAMBA_NAMES],
        whole_names: &[MAMBA_WHOLE_NAMES],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

const KEYS: &[ConfigKey] = &[
    optional("mamba_d_ssm", KeyMapping::Integer("ssm.inner_size")),
    optional("mamba_norm_before_gate", KeyMapping::Bool("ssm.norm_before_gate")),
    optional("attention_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("mlp_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("projectors_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("embedding_multiplier", KeyMapping::Float("embedding_scale")),
    optional("lm_head_multiplier", KeyMapping::Float("logit_scale")),
    optional("attention_in_multiplier", KeyMapping::Float("multipliers.attention_in")),
    optional("attention_out_multiplier", KeyMapping::Float("multipliers.attention_out")),
    optional("key_multiplier", KeyMapping::Float("multipliers.key")),
    optional("ssm_in_multiplier", KeyMapping::Float("multipliers.ssm_in")),
    optional("ssm_out_multiplier", KeyMapping::Float("multipliers.ssm_out")),
    optional("ssm_multipliers", KeyMapping::Floats("multipliers.ssm")),
    optional("mlp_multipliers", KeyMapping::Floats("multipliers.feed_forward")),
];

const NAMES: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.final_layernorm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"),
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    ("blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"),
];
