//! How an architecture's models look in a Hugging Face folder, as data: the names of tensors in transformers, and the GGUF metadata key for
//! each key of `config.json`. `model/hugging_face` translates with it.
//!
//! Sources: transformers' modelling and configuration files, and the keys of the GGUF specification.

use super::{LayerKind, RopeKind};

/// An architecture as transformers writes it.
#[derive(Debug, PartialEq)]
pub struct HuggingFace {
    /// Values of `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// A key of `config.json` and the value that it has for this form alone, of those with the same model type.
    pub selected_by: Option<(&'static str, ConstValue)>,
    /// Which elements rope rotates together in these files. It may differ from GGUF, whose converters reorder rows.
    pub rope: RopeKind,
    /// transformers' defaults for keys that `config.json` leaves out.
    pub defaults: &'static [(&'static str, ConstValue)],
    /// Tables that architectures share. If a key of `config.json` has two entries, both apply; of
    /// two entries for one key of the metadata the first.
    pub keys: &'static [&'static [ConfigKey]],
    /// Stems of tensor names (without `.weight` or `.bias`), ours and theirs. The first `{}` is the layer. A second one in theirs is the
    /// expert: all experts become one stacked tensor.
    pub names: &'static [&'static [(&'static str, &'static str)]],
    /// A key of `config.json` and the value with which the output matrix is the model's own if there is one, whatever `tie_word_embeddings`
    /// says.
    pub untied_by: Option<(&'static str, ConstValue)>,
    /// Tables of whole names of tensors, ours and theirs, of those whose last part is another than ours.
    pub whole_names: &'static [&'static [(&'static str, &'static str)]],
    /// Beginnings of names that stand for others, theirs and those in `names`.
    pub moved: &'static [(&'static str, &'static str)],
    /// `attn_qkv` has the rows of each group of heads together: queries, then a key, then a value. They become three tensors.
    pub groups_heads: bool,
    /// What layers with full attention have otherwise than those with a window (`hugging_face/layer_kinds.rs`).
    pub by_kind: ByKind,
    /// Rope rotates as much of each head as `partial_rotary_factor` says. Other models ignore that key, as transformers does.
    pub partial_rope: bool,
    /// A scaling of rope that is called dynamic is one of its base by a fixed `alpha`, if there is one.
    pub rope_alpha: bool,
    /// A scaling of rope that is called `ntk` is that of Alibaba's encoders, which know no other.
    pub rope_ntk: bool,
    /// Files may hold layers past the last one, which predict further tokens and are not read.
    pub has_further_layers: bool,
    /// Beginnings of the tensors of a head that predicts further tokens (`hugging_face/mtp.rs`).
    pub predicts_under: &'static [&'static str],
    /// Values of `quant_method` whose tensors are read.
    pub quant_methods: &'static [&'static str],
    /// Prefixes that tensor names may have, if the model was saved as a part of another one or without its head.
    pub prefixes: &'static [&'static str],
    /// Stems of tensors that files may hold although they follow from the configuration.
    pub ignored: &'static [&'static str],
    /// Prefixes of tensors outside the text model.
    pub other_parts: &'static [&'static str],
    /// Prefixes of the tensors of heads for other tasks than ours. They are not read, and the caller is told.
    pub other_heads: &'static [&'static str],
    /// The head of `…ForSequenceClassification`; `None` if it is not supported.
    pub classifier: Option<&'static ClassifierForm>,
    /// Values of `model_type` of multimodal models whose section `text_config` may be of this form. Others place and name the tensors of
    /// their text otherwise, or attend otherwise.
    pub text_part_of: &'static [&'static str],
    /// Tensors, by our stems, whose values differ from those of GGUF files.
    pub transforms: &'static [(&'static str, WeightTransform)],
    /// The position of a text's first token. Files have this number of rows before it in `position_embd`, which GGUF files leave out.
    pub first_position: u64,
    /// `max_position_embeddings` counts these rows.
    pub counts_first_positions: bool,
    /// Positions are these sines, whether files hold them or not.
    pub sines: Option<Sines>,
    /// Other forms of folder for the same architecture, for other values of `model_type`.
    pub others: &'static [&'static HuggingFace],
}

/// Positions that are sines and cosines of frequencies from 1 down to about 1/10000, as many of each as half a vector has numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sines {
    /// The position of a text's first token.
    pub first: u64,
    /// The last frequency is 1/10000, as in fairseq. Otherwise it would be the one after the last, as in the paper.
    pub reaches_slowest: bool,
}

/// What layers with full attention have otherwise than those with a window. `turned` is the share of their rope's pairs that turn, if
/// `config.json` does not say it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ByKind {
    /// At most a base of rope.
    Nothing,
    /// A rope.
    Ropes { turned: f64 },
    /// Heads and a rope.
    HeadsAndRopes { turned: f64 },
}

/// The head of a model that scores or labels texts, as transformers writes it.
#[derive(Debug, PartialEq)]
pub struct ClassifierForm {
    /// Stems of tensor names, ours and theirs.
    pub names: &'static [(&'static str, &'static str)],
    /// The vector that it takes: `cls`, `mean` or `last`.
    pub pooling: &'static str,
    /// The function after `cls`, by transformers' name.
    pub activation: &'static str,
    /// Keys of `config.json` that say it otherwise.
    pub keys: &'static [ConfigKey],
}

/// One matrix, for the vector of the last token (transformers' `GenericForSequenceClassification`).
pub(super) const SCORE: ClassifierForm =
    ClassifierForm { names: &[("cls.output", "score")], pooling: "last", activation: "", keys: &[] };

/// A key of `config.json`.
#[derive(Debug, PartialEq)]
pub struct ConfigKey {
    /// The key.
    pub key: &'static str,
    /// What it is translated to.
    pub mapping: KeyMapping,
    /// Whether a configuration without it is refused.
    pub required: bool,
}

/// What a key of `config.json` is translated to. Metadata keys are written without the architecture's prefix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyMapping {
    /// An integer, or an array of them, with this metadata key.
    Integer(&'static str),
    /// An integer, or "auto", which is as if the key were missing.
    IntegerOrAuto(&'static str),
    /// A number.
    Float(&'static str),
    /// A number above 0, or null for none of it, which becomes 0. Not so a key that is missing, for which there is a default.
    NumberOrNone(&'static str),
    Bool(&'static str),
    /// A text.
    Text(&'static str),
    /// An array of numbers.
    Floats(&'static str),
    /// Whether a text is this one.
    TextIs(&'static str, &'static str),
    /// 1/√ of a number.
    InverseSqrt(&'static str),
    /// The kind of attention of each layer, an array of texts. It becomes an array of bools: true for a layer with a window.
    Windows(&'static str),
    /// The same where layers may be of a kind without attention.
    WindowsBeside(&'static str, &'static str),
    /// The kind of each layer, an array of these texts, or one text of such characters. It becomes `layer_kinds`, an array of numbers.
    LayerKinds(&'static [(&'static str, LayerKind)]),
    /// The number of layers of which one has attention, the first of them `attn_layer_offset`; the others are recurrent. They become
    /// `layer_kinds`.
    AttentionPeriod,
    /// The numbers of the layers with attention; the others are recurrent. They become `layer_kinds`.
    AttentionLayers,
    /// LFM2's length of the feed-forward, if `block_auto_adjust_ff_dim` is set: two thirds of a number, times `block_ffn_dim_multiplier`, rounded
    /// up to a multiple of `block_multiple_of`. `block_ff_dim` comes first as that number.
    AdjustedFeedForward(&'static str),
    /// 1, if the key is true and another one is not.
    OneUnless(&'static str, &'static str),
    /// An integer that applies only if another key is true.
    IntegerIf(&'static str, &'static str),
    /// The share of each layer's gates that don't count, an array. It becomes the quantiles of the normal distribution; −∞ for none.
    Quantiles(&'static str),
    /// The sum of an integer and that of another key.
    Sum(&'static str, &'static str),
    /// A number divided by √ of another key's.
    OverSqrt(&'static str, &'static str),
    /// Another key's number divided by it.
    Under(&'static str, &'static str),
    /// Layers from this number on have a window, if the configuration has no kinds of layers.
    LateWindows(&'static str),
    /// An integer that applies only if another key has this text.
    IntegerIfText(&'static str, &'static str, &'static str),
    /// What a router's logits become, a text.
    Gating(&'static str),
    /// Whether there are windows: in the layers that `layer_types` names, or in all from `max_window_layers` on.
    HasWindows(&'static str),
    /// No metadata. The least and the largest number that steps of a state space model may have; supported is only that there is no limit.
    NoLimit,
    /// No metadata. The value must be one of these, because others need a computation that is not supported. The key may be missing.
    AllowOnly(&'static [ConstValue]),
}

/// A value for a key of `config.json`: a default, or one that is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConstValue {
    Bool(bool),
    Number(f64),
    Text(&'static str),
    /// What another key has. Only in defaults.
    Of(&'static str),
    /// A multiple of the integer of another key. Only in defaults.
    MultipleOf(u64, &'static str),
    /// How long the array or the text of another key is. Only in defaults.
    LengthOf(&'static str),
}

/// How the values in a file must be transformed to be those of a GGUF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightTransform {
    /// Adds one to a vector, because the model multiplies by 1 + w.
    AddOne,
    /// Transposes a matrix (transformers' `Conv1D`).
    Transpose,
    /// Leaves out dimensions of 1 (a convolution of each channel by itself).
    Squeeze,
    /// −exp of a vector, whose logarithm the file holds.
    NegativeExp,
}

pub(super) const fn required(key: &'static str, mapping: KeyMapping) -> ConfigKey {
    ConfigKey { key, mapping, required: true }
}

pub(super) const fn optional(key: &'static str, mapping: KeyMapping) -> ConfigKey {
    ConfigKey { key, mapping, required: false }
}

/// Keys of all decoders with rope, without the ε of their norms. `model/hugging_face/rope.rs` translates the scaling of rope, and the
/// tensors show whether embeddings are tied.
pub(super) const DECODER_KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", KeyMapping::Integer("block_count")),
    required("hidden_size", KeyMapping::Integer("embedding_length")),
    required("intermediate_size", KeyMapping::Integer("feed_forward_length")),
    required("num_attention_heads", KeyMapping::Integer("attention.head_count")),
    optional("num_key_value_heads", KeyMapping::Integer("attention.head_count_kv")),
    optional("head_dim", KeyMapping::Integer("attention.key_length")),
    optional("head_dim", KeyMapping::Integer("attention.value_length")),
    required("max_position_embeddings", KeyMapping::Integer("context_length")),
    required("vocab_size", KeyMapping::Integer("vocab_size")),
];

/// The ε of RMS norms.
pub(super) const RMS: &[ConfigKey] = &[required("rms_norm_eps", KeyMapping::Float("attention.layer_norm_rms_epsilon"))];

/// The ε of layer norms.
pub(super) const LAYER_NORM: &[ConfigKey] =
    &[required("layer_norm_eps", KeyMapping::Float("attention.layer_norm_epsilon"))];

/// Switches of attention that any configuration of a decoder may have.
pub(crate) const DECODER_SWITCHES: &[ConfigKey] = &[
    optional("is_causal", KeyMapping::AllowOnly(&[ConstValue::Bool(true)])),
    // Of images alone, which are not read.
    optional(
        "use_bidirectional_attention",
        KeyMapping::AllowOnly(&[ConstValue::Bool(false), ConstValue::Text("vision")]),
    ),
    optional("add_cross_attention", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
    optional("alibi", KeyMapping::AllowOnly(&[ConstValue::Bool(false)])),
];

pub(super) const SILU: ConfigKey =
    optional("hidden_act", KeyMapping::AllowOnly(&[ConstValue::Text("silu"), ConstValue::Text("swish")]));

/// Which layers have a window, and its length.
pub(super) const WINDOW: &[ConfigKey] = &[
    optional("sliding_window", KeyMapping::Integer("attention.sliding_window")),
    optional("layer_types", KeyMapping::Windows("attention.sliding_window_pattern")),
];

pub(super) const GELU_TANH: ConfigKey = optional(
    "hidden_activation",
    KeyMapping::AllowOnly(&[ConstValue::Text("gelu_pytorch_tanh"), ConstValue::Text("gelu_new")]),
);

/// Names that Llama and all later decoders share.
pub(super) const COMMON_NAMES: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    ("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
];

/// `post_attention_layernorm` is the norm before the feed-forward.
pub(super) const PRE_NORM_NAMES: &[(&str, &str)] = &[("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm")];

/// The names if there are also norms after attention and feed-forward.
pub(super) const POST_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
];

pub(super) const QUERY_KEY_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

/// What is added to a router's scores.
pub(super) const ROUTER_CORRECTION_NAME: &[(&str, &str)] =
    &[("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias")];

/// What a layer that predicts further tokens has besides, as DeepSeek's folders name it.
pub(super) const MTP_NAMES: &[(&str, &str)] = &[
    ("blk.{}.nextn.eh_proj", "model.layers.{}.eh_proj"),
    ("blk.{}.nextn.enorm", "model.layers.{}.enorm"),
    ("blk.{}.nextn.hnorm", "model.layers.{}.hnorm"),
    ("blk.{}.nextn.shared_head_norm", "model.layers.{}.shared_head.norm"),
    ("blk.{}.nextn.shared_head_head", "model.layers.{}.shared_head.head"),
    ("blk.{}.nextn.embed_tokens", "model.layers.{}.embed_tokens"),
];

/// What Mistral 3's models have besides their text.
pub(super) const MISTRAL3_PARTS: &[&str] =
    &["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];

/// The frequencies of rope, which old files hold.
pub(super) const ROPE_FREQUENCIES: &[&str] = &["model.layers.{}.self_attn.rotary_emb", "model.rotary_emb"];

impl HuggingFace {
    /// Llama's form, the base of the others.
    pub(super) const DECODER: HuggingFace = HuggingFace {
        model_types: &[],
        selected_by: None,
        rope: RopeKind::Halves,
        defaults: &[],
        keys: &[DECODER_KEYS, RMS, &[SILU]],
        names: &[COMMON_NAMES, PRE_NORM_NAMES],
        untied_by: None,
        whole_names: &[],
        // Models that were saved without a head have no such beginning.
        moved: &[("", "model.")],
        groups_heads: false,
        by_kind: ByKind::Nothing,
        partial_rope: false,
        rope_alpha: false,
        rope_ntk: false,
        has_further_layers: false,
        predicts_under: &[],
        quant_methods: &[],
        prefixes: &[],
        ignored: ROPE_FREQUENCIES,
        other_parts: &[],
        other_heads: &[],
        classifier: Some(&SCORE),
        text_part_of: &[],
        transforms: &[],
        first_position: 0,
        counts_first_positions: true,
        sines: None,
        others: &[],
    };

    /// This form of folders and the others of the architecture.
    pub fn all(&'static self) -> impl Iterator<Item = &'static HuggingFace> {
        std::iter::once(self).chain(self.others.iter().copied())
    }
}
