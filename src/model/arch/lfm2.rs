//! LFM2, dense and MoE: most layers are gated short convolutions, which keep their last few inputs, and the others have attention with norms
//! of heads. The experts are chosen by the sigmoid of their scores and a bias.
//!
//! llama.cpp's files name the norm after the layers as if it were that of the embedding.

use super::{
    Arch, GgufName, LayerKind, LayerPattern, RecurrenceKind, WeightTransform,
    hugging_face::{ConfigKey, ConstValue, DECODER_KEYS, HuggingFace, KeyMapping, optional, required},
    tensors::{ATTENTION, HEAD_NORMS, MIXTURE, NORMS, ROUTER_CORRECTION, SHORT_CONVOLUTION},
};
use crate::tensor::ops::Gating;

pub const LFM2: Arch = Arch {
    name: "lfm2",
    layers: LayerPattern::ByHeads,
    recurrence: Some(RecurrenceKind::ShortConvolution),
    layer_tensors: &[NORMS],
    attention_tensors: &[ATTENTION, HEAD_NORMS],
    recurrent_tensors: &[SHORT_CONVOLUTION],
    gguf_names: &[GgufName { theirs: "token_embd_norm", ours: "output_norm", beside: None }],
    hugging_face: Some(&HuggingFace {
        model_types: &["lfm2"],
        defaults: DEFAULTS,
        keys: &[DENSE, DECODER_KEYS, KEYS],
        names: &[CONVOLUTION_NAMES, ATTENTION_NAMES],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};

pub const LFM2_MOE: Arch = Arch {
    name: "lfm2moe",
    gating: Gating::Sigmoid,
    experts: &[MIXTURE, ROUTER_CORRECTION],
    hugging_face: Some(&HuggingFace {
        model_types: &["lfm2_moe"],
        defaults: DEFAULTS,
        keys: &[DECODER_KEYS, KEYS, EXPERTS],
        names: &[CONVOLUTION_NAMES, ATTENTION_NAMES, EXPERT_NAMES],
        whole_names: &[&[("blk.{}.exp_probs_b.bias", "model.layers.{}.feed_forward.expert_bias")]],
        transforms: TRANSFORMS,
        ..HuggingFace::DECODER
    }),
    ..LFM2
};

const DEFAULTS: &[(&str, ConstValue)] = &[
    ("tie_word_embeddings", ConstValue::Bool(true)),
    ("rope_theta", ConstValue::Number(1000000.0)),
    ("block_multiple_of", ConstValue::Number(256.0)),
    ("block_ffn_dim_multiplier", ConstValue::Number(1.0)),
    ("block_auto_adjust_ff_dim", ConstValue::Bool(true)),
    ("intermediate_size", ConstValue::Of("block_ff_dim")),
];

const LAYER_KINDS: &[(&str, LayerKind)] = &[("full_attention", LayerKind::Attention), ("conv", LayerKind::Recurrent)];

const KEYS: &[ConfigKey] = &[
    required("norm_eps", KeyMapping::Float("attention.layer_norm_rms_epsilon")),
    required("conv_L_cache", KeyMapping::Integer("shortconv.l_cache")),
    optional("conv_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("tie_embedding", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    // Of the kinds and the indices, which older configurations have, the first count.
    optional("layer_types", KeyMapping::LayerKinds(LAYER_KINDS)),
    optional("full_attn_idxs", KeyMapping::AttentionLayers),
];

/// Before `DECODER_KEYS`: what stands for the length of the feed-forward is most often a number that it follows from.
const DENSE: &[ConfigKey] = &[required("intermediate_size", KeyMapping::AdjustedFeedForward("feed_forward_length"))];

const EXPERTS: &[ConfigKey] = &[
    required("num_experts", KeyMapping::Integer("expert_count")),
    required("num_experts_per_tok", KeyMapping::Integer("expert_used_count")),
    required("moe_intermediate_size", KeyMapping::Integer("expert_feed_forward_length")),
    required("norm_topk_prob", KeyMapping::Bool("expert_weights_norm")),
    required("routed_scaling_factor", KeyMapping::Float("expert_weights_scale")),
    required("use_expert_bias", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
];

/// All but attention's.
pub(super) const CONVOLUTION_NAMES: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.embedding_norm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.operator_norm"),
    ("blk.{}.ffn_norm", "model.layers.{}.ffn_norm"),
    ("blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj"),
    ("blk.{}.shortconv.conv", "model.layers.{}.conv.conv"),
    ("blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj"),
    ("blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"),
    ("blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"),
    ("blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"),
];

const ATTENTION_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"),
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"),
];

const EXPERT_NAMES: &[(&str, &str)] = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.gate"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{}.w1"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{}.w3"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{}.w2"),
];

pub(super) const TRANSFORMS: &[(&str, WeightTransform)] = &[("blk.{}.shortconv.conv", WeightTransform::Squeeze)];
