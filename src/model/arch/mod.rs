//! The architectures as data: which tensors a model of the architecture has and how they are used. A file for each;
//! this one is the list and the types that they are written in.
//!
//! Knows no buffers and no kernels. Whoever runs a model branches on the fields and never on the name.

mod hugging_face;
mod llama;
mod qwen2;

pub use hugging_face::{Change, ConfigKey, Fixed, HuggingFace, Meaning};

use super::checkpoint::Origin;
use super::config::Config;
use crate::error::Result;

/// Every architecture that runs. A new one is a file of this folder and a line here.
pub const ARCHS: &[&Arch] = &[&llama::LLAMA, &qwen2::QWEN2];

/// An architecture.
#[derive(Debug, PartialEq)]
pub struct Arch {
    /// The value of `general.architecture`, which is also the prefix of its metadata keys.
    pub name: &'static str,
    /// What rope turns together in GGUF files.
    pub rope: RopeKind,
    /// The tensors of the model outside of its layers.
    pub model_tensors: &'static [TensorSpec],
    /// The tensors of each layer; `{}` in a name stands for the layer's number.
    pub layer_tensors: &'static [TensorSpec],
    /// Tensors of a layer, without their suffix, that old files hold and that may be ignored: rope's frequencies, which
    /// follow from `rope_theta`.
    pub ignored_layer_tensors: &'static [&'static str],
    /// How transformers writes such models; `None` where only GGUF files are read.
    pub hugging_face: Option<&'static HuggingFace>,
}

/// Which two elements of a head rotary position embedding turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// Neighbours: 2i and 2i + 1. ggml calls it "norm".
    Interleaved,
    /// An element of the first half and one of the second: i and i + head_dim / 2. ggml calls it "neox".
    Halves,
}

/// A tensor that the architecture has, in the names of llama.cpp's files.
#[derive(Debug, PartialEq)]
pub struct TensorSpec {
    pub name: &'static str,
    /// In the order of the file: the first is the length of a row.
    pub dims: &'static [Dim],
    pub optional: bool,
}

/// A dimension of a tensor, as the configuration of the model gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// n_embd
    Embedding,
    /// n_ff
    FeedForward,
    /// n_heads × head_dim
    Query,
    /// n_kv_heads × head_dim
    KeyValue,
    /// vocab_size
    Vocabulary,
    /// rope_dim / 2: one for each pair of elements that are turned together
    RopePairs,
}

impl Dim {
    fn of(self, config: &Config) -> u64 {
        let dim = match self {
            Self::Embedding => config.n_embd,
            Self::FeedForward => config.n_ff,
            Self::Query => config.n_heads * config.head_dim,
            Self::KeyValue => config.n_kv_heads * config.head_dim,
            Self::Vocabulary => config.vocab_size,
            Self::RopePairs => config.rope_dim / 2,
        };
        dim as u64
    }
}

/// Matrices of a layer that kernels read as one, the rows of each after those of the one before.
pub const JOINED: &[(&str, &[&str])] =
    &[("attn_qkv", &["attn_q", "attn_k", "attn_v"]), ("ffn_gate_up", &["ffn_gate", "ffn_up"])];

/// A tensor that a model of a configuration has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTensor {
    pub name: String,
    /// In the order of the file: the first is the length of a row.
    pub dims: Vec<u64>,
    pub optional: bool,
}

impl Arch {
    /// The architecture of a `general.architecture`, or `Code::UnsupportedArchitecture` that lists what there is.
    pub fn find(name: &str) -> Result<&'static Arch> {
        ARCHS.iter().find(|arch| arch.name == name).copied().ok_or_else(|| {
            let supported: Vec<_> = ARCHS.iter().map(|arch| arch.name).collect();
            err!(
                UnsupportedArchitecture,
                "the model's architecture is {name:?}, supported: {}; choose a model of one of these",
                supported.join(", ")
            )
        })
    }

    /// What rope turns together in files of an origin.
    pub(super) fn rope_in(&self, origin: Origin) -> RopeKind {
        match (origin, self.hugging_face) {
            (Origin::HuggingFace, Some(hf)) => hf.rope,
            _ => self.rope,
        }
    }

    /// Whether the model may be run as if the file did not hold this tensor.
    pub(super) fn ignores(&self, tensor: &str) -> bool {
        let Some((layer, rest)) = tensor.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            return false;
        };
        let stem = rest.split('.').next().unwrap_or(rest);
        layer.parse::<u32>().is_ok() && self.ignored_layer_tensors.contains(&stem)
    }
}

/// All tensors that a model of this configuration has, those outside of the layers first.
pub fn expected_tensors(config: &Config) -> Vec<ExpectedTensor> {
    let expected = |spec: &TensorSpec, name: String| ExpectedTensor {
        name,
        dims: spec.dims.iter().map(|dim| dim.of(config)).collect(),
        optional: spec.optional,
    };
    let model = config.arch.model_tensors.iter().map(|spec| expected(spec, spec.name.to_owned()));
    let layers = (0..config.n_layers).flat_map(|layer| {
        let specs = config.arch.layer_tensors.iter();
        specs.map(move |spec| expected(spec, spec.name.replace("{}", &layer.to_string())))
    });
    model.chain(layers).collect()
}
