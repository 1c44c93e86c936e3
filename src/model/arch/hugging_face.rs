//! How the models of an architecture stand in a Hugging Face folder, as data: what transformers calls its tensors, and which key
//! of `config.json` is which metadata key of a GGUF file. `model/hugging_face` translates by it.
//!
//! Sources: transformers' modelling and configuration files, and the keys of the GGUF specification.

use super::RopeKind;

/// An architecture as transformers writes it.
#[derive(Debug, PartialEq)]
pub struct HuggingFace {
    /// Values of `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// What rope turns together in these files. Converters to GGUF reorder rows for some architectures, so it may differ.
    pub rope: RopeKind,
    /// What keys are that `config.json` leaves out: transformers' own defaults.
    pub defaults: &'static [(&'static str, Fixed)],
    /// In tables, so that architectures share them. Of two entries for one key of `config.json` both hold.
    pub keys: &'static [&'static [ConfigKey]],
    /// Stems of tensor names (without `.weight` or `.bias`), ours and theirs. The first `{}` is the layer, a second one in theirs
    /// the expert: experts become one tensor, stacked.
    pub names: &'static [&'static [(&'static str, &'static str)]],
    /// What may stand before their names, in files of a model that was saved as a part of another, or as a part alone.
    pub prefixes: &'static [&'static str],
    /// Stems of tensors that files may hold and that follow from the configuration.
    pub ignored: &'static [&'static str],
    /// What the names of tensors begin with that belong to other parts than the model of text.
    pub other_parts: &'static [&'static str],
    /// Tensors, by our stems, whose values differ from what our files hold.
    pub changes: &'static [(&'static str, Change)],
    /// The position of a text's first token. `position_embd` has so many rows before it, which our files don't have, and
    /// `context_length` counts them.
    pub first_position: u64,
    /// Models of other types in `config.json` that are the same to us once their folders are read in another way.
    pub others: &'static [&'static HuggingFace],
}

/// A key of `config.json`.
#[derive(Debug, PartialEq)]
pub struct ConfigKey {
    pub key: &'static str,
    pub meaning: Meaning,
    pub required: bool,
}

/// What a key of `config.json` is to us. Metadata keys are written without the architecture's prefix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning {
    /// An integer, or an array of them, with this metadata key.
    Integer(&'static str),
    /// A number.
    Float(&'static str),
    Bool(&'static str),
    /// A text.
    Text(&'static str),
    /// 1/√ of a number.
    InverseSqrt(&'static str),
    /// The kind of attention of each layer, an array of texts; as truth values whether it has a window.
    Windows(&'static str),
    /// An integer that counts where another key is true.
    IntegerIf(&'static str, &'static str),
    /// Whether there are windows: which layers have one, by `layer_types`, or all from `max_window_layers` on.
    HasWindows(&'static str),
    /// Anything else than these changes the computation to one that is not supported. A key that is not there is fine.
    OneOf(&'static [Fixed]),
}

/// A value that a key of `config.json` may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fixed {
    Bool(bool),
    Number(f64),
    Text(&'static str),
    /// So many times the integer of another key. Of defaults only.
    Times(u64, &'static str),
}

/// How values are to be changed to be those that a GGUF file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of a vector: one is added, since the model multiplies with 1 + w.
    AddOne,
    /// Of a matrix: rows and columns are exchanged (transformers' `Conv1D`).
    Transpose,
}

pub(super) const fn required(key: &'static str, meaning: Meaning) -> ConfigKey {
    ConfigKey { key, meaning, required: true }
}

pub(super) const fn optional(key: &'static str, meaning: Meaning) -> ConfigKey {
    ConfigKey { key, meaning, required: false }
}

/// What decoders with rope and RMS norms share. Rope's scaling is translated apart (`model/hugging_face/rope.rs`), and whether
/// embeddings are tied shows in the tensors.
pub(super) const DECODER_KEYS: &[ConfigKey] = &[
    required("num_hidden_layers", Meaning::Integer("block_count")),
    required("hidden_size", Meaning::Integer("embedding_length")),
    required("intermediate_size", Meaning::Integer("feed_forward_length")),
    required("num_attention_heads", Meaning::Integer("attention.head_count")),
    optional("num_key_value_heads", Meaning::Integer("attention.head_count_kv")),
    optional("head_dim", Meaning::Integer("attention.key_length")),
    optional("head_dim", Meaning::Integer("attention.value_length")),
    required("rms_norm_eps", Meaning::Float("attention.layer_norm_rms_epsilon")),
    required("max_position_embeddings", Meaning::Integer("context_length")),
    required("vocab_size", Meaning::Integer("vocab_size")),
];

pub(super) const SILU: ConfigKey = optional("hidden_act", Meaning::OneOf(&[Fixed::Text("silu"), Fixed::Text("swish")]));

/// Which layers have a window, and how long.
pub(super) const WINDOW: &[ConfigKey] = &[
    optional("sliding_window", Meaning::Integer("attention.sliding_window")),
    optional("layer_types", Meaning::Windows("attention.sliding_window_pattern")),
];

pub(super) const GELU_TANH: ConfigKey =
    optional("hidden_activation", Meaning::OneOf(&[Fixed::Text("gelu_pytorch_tanh"), Fixed::Text("gelu_new")]));

/// Names that all decoders after Llama share.
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

/// What follows the attention is, by its name, the norm before the feed-forward.
pub(super) const PRE_NORM_NAMES: &[(&str, &str)] = &[("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm")];

/// Where there are norms behind attention and feed-forward too, names mean what they say.
pub(super) const POST_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
];

pub(super) const QUERY_KEY_NORM_NAMES: &[(&str, &str)] = &[
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

/// Rope's frequencies, which old files hold.
pub(super) const ROPE_FREQUENCIES: &[&str] = &["model.layers.{}.self_attn.rotary_emb", "model.rotary_emb"];

impl HuggingFace {
    /// What a Llama is, for others to differ from.
    pub(super) const DECODER: HuggingFace = HuggingFace {
        model_types: &[],
        rope: RopeKind::Halves,
        defaults: &[],
        keys: &[DECODER_KEYS, &[SILU]],
        names: &[COMMON_NAMES, PRE_NORM_NAMES],
        prefixes: &[],
        ignored: ROPE_FREQUENCIES,
        other_parts: &[],
        changes: &[],
        first_position: 0,
        others: &[],
    };

    /// This way of reading folders and the others of the architecture.
    pub fn all(&'static self) -> impl Iterator<Item = &'static HuggingFace> {
        std::iter::once(self).chain(self.others.iter().copied())
    }
}
